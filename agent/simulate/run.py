"""One simulated run, written as a labelled bundle."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from agent.bundle.format import BundleError, Header, Writer, is_bundle, read
from agent.bundle.header import Label
from agent.errors import ConfigError, KvtideError
from agent.settings_file import shown
from agent.simulate.process import Simulator, SimulatorError
from agent.simulate.states import States
from agent.simulate.truth import Truths
from agent.state import AgentState
from engine_hooks import __version__
from engine_hooks.simulator import pipe
from engine_hooks.simulator.clock import MONOTONIC_START
from engine_hooks.simulator.spec import Engine, Event, Fault, Load, Spec, SpecError

__all__ = ["Engine", "Event", "Fault", "Load", "Simulator", "SimulatorError", "Spec", "Summary", "simulate", "spec_of"]


WHY = "simulated"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run. ``seconds``: virtual ones that were simulated, in ``wall_seconds`` (without the start of
    the process). ``planted``: blocks that each of the spec's faults took, by its place.
    """

    states: int
    seconds: float
    wall_seconds: float
    labels: tuple[Label, ...]
    planted: dict[int, int]
    engine_version: str

    @property
    def ratio(self) -> float:
        """Virtual seconds per second."""
        return self.seconds / self.wall_seconds if self.wall_seconds > 0 else 0.0


def simulate(
    spec: Spec,
    out: Path,
    python: Path | None = None,
    *,
    simulator: Simulator | None = None,
    progress: Callable[[float], None] | None = None,
    unseen: bool = False,
) -> Summary:
    """Run ``spec`` and write what an agent would have seen to ``out``, with the truth.

    ``python``: an interpreter with vLLM; ``simulator`` instead: a process that is there already, which many runs may
    share. ``progress`` is told the virtual seconds that are done, now and then. ``unseen``: marks the labels so. A
    KeyboardInterrupt leaves a bundle of what was done until then. Raises :class:`KvtideError`.
    """
    check(spec)
    _check_out(out)
    if simulator is None:
        with Simulator(python) as own:
            return simulate(spec, out, simulator=own, progress=progress, unseen=unseen)
    # A bundle begins with its labels, and what is planted is known exactly only when it has been.
    draft = out.with_name(f".{out.name}.part")
    states, truths = States(spec.start), Truths(spec)
    began: float | None = None
    writer: Writer | None = None
    try:
        with Writer(draft, _header(spec, states, truths, unseen=unseen)) as writer:
            try:
                for item in simulator.run(spec):
                    began = time.monotonic() if began is None else began
                    if item.kind == pipe.TRUTH:
                        truths.take(item)
                    _write(writer, states.take(item), progress)
                _write(writer, states.end(MONOTONIC_START + spec.seconds), progress)
            except ConfigError:
                raise  # the spec was refused: the process is ready for another
            except BaseException:
                simulator.close()  # it is in the middle of a run that nobody listens to
                raise
        wall = time.monotonic() - (began or time.monotonic())
        _finish(draft, out, _header(spec, states, truths, unseen=unseen))
    except KeyboardInterrupt:
        if writer is not None and writer.states:
            _finish(draft, out, _header(spec, states, truths, unseen=unseen))
        raise
    except OSError as error:
        raise KvtideError(f"{out}: can't be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
    return Summary(
        states=writer.states,
        seconds=spec.seconds,
        wall_seconds=wall,
        labels=_labels(truths, unseen=unseen),
        planted=truths.planted(),
        engine_version=states.engine_version,
    )


def check(spec: Spec) -> None:
    """Raise :class:`SpecError`'s words as a :class:`ConfigError` where ``spec`` can't be run."""
    if not -(1 << 63) <= spec.seed < 1 << 63:
        raise ConfigError(f"seed: {shown(spec.seed)}: must be a whole number of 64 bits")
    try:
        spec.check()
    except SpecError as error:
        raise ConfigError(str(error)) from None


def _check_out(out: Path) -> None:
    """Refuse a path where something would be lost: only another simulated bundle may be replaced."""
    try:
        if not out.name or (out.exists() and not out.is_file()):
            raise ConfigError(f"{out}: is no place for a file; name one that is to be written, such as a.kvtide")
        if out.exists() and not (is_bundle(out) and read(out).header.why == WHY):
            raise ConfigError(f"{out}: is there already, and is no simulated bundle; choose another name")
    except BundleError:
        raise ConfigError(f"{out}: is there already, and can't be read; choose another name") from None
    except OSError as error:
        raise ConfigError(f"{shown(str(out))}: can't be written: {error.strerror}") from None


def spec_of(header: Header) -> Spec | None:
    """Return the spec that a bundle was made from; None where it was not simulated."""
    text = header.about.get("spec")
    return msgspec.json.decode(text, type=Spec) if text else None


def _write(writer: Writer, states: Iterable[AgentState], progress: Callable[[float], None] | None) -> None:
    for state in states:
        writer.state(state)
        if progress is not None:
            progress(state.monotonic - MONOTONIC_START)


def _labels(truths: Truths, *, unseen: bool) -> tuple[Label, ...]:
    return tuple(msgspec.structs.replace(label, unseen=unseen) for label in truths.labels())


def _header(spec: Spec, states: States, truths: Truths, *, unseen: bool) -> Header:
    about = {
        "spec": msgspec.json.encode(spec).decode(),
        "seed": str(spec.seed),
        "engine": f"vLLM {states.engine_version}" if states.engine_version else "",
        "events": truths.events(),
    }
    return Header(
        why=WHY,
        version=__version__,
        host="simulator",
        created_at=spec.start,
        labelled=True,
        labels=_labels(truths, unseen=unseen),
        about={key: value for key, value in about.items() if value},
    )


def _finish(draft: Path, out: Path, header: Header) -> None:
    """Write the bundle with the labels that are known now, and put it into its place whole."""
    whole = out.with_name(f".{out.name}.whole")
    try:
        with Writer(whole, header) as writer:
            for kind, body in read(draft).raw():
                writer.raw(kind, body)
        whole.replace(out)
    finally:
        with suppress(OSError):
            whole.unlink(missing_ok=True)
