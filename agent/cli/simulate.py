"""``kvtide simulate``: an engine in virtual time, with a load and a fault, recorded as a labelled bundle."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.simulate.run import Event, Spec, Summary

_EVENT = re.compile(r"(?P<kind>[a-z_]+)@(?P<at>[\d.]+)(?:\+(?P<seconds>[\d.]+))?(?:x(?P<size>[\d.]+))?")
_CONNECTORS = {"delayed_free": "remote", "abort_loading": "remote", "bounded_delay": "remote", "unknown_pin": "opaque"}
_ENGINE, _LOAD, _FAULT, _RUN = "The engine", "The load", "What goes wrong", "The run"
_DRAFTS = 4


def simulate(
    out: Annotated[Path, typer.Argument(help="The bundle to write.")],
    *,
    hours: Annotated[float, typer.Option(help="Virtual hours; with --minutes together.", rich_help_panel=_RUN)] = 0.0,
    minutes: Annotated[
        float, typer.Option(help="Virtual minutes (60 where neither is given).", rich_help_panel=_RUN)
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bundle.", rich_help_panel=_RUN)] = 0,
    spec: Annotated[
        Path | None,
        typer.Option(
            help="A JSON file with the whole spec instead of options; docs/simulator.md.", rich_help_panel=_RUN
        ),
    ] = None,
    engine_python: Annotated[
        Path | None,
        typer.Option(help="Python of an environment with vLLM; or KVTIDE_ENGINE_PYTHON.", rich_help_panel=_RUN),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=_RUN)] = False,
    trace: Annotated[
        str,
        typer.Option(
            help="poisson, mooncake (that trace's shape), or a JSON Lines file such as it is.", rich_help_panel=_LOAD
        ),
    ] = "poisson",
    rate: Annotated[float, typer.Option(help="Requests a second.", rich_help_panel=_LOAD)] = 1.5,
    prompt: Annotated[int, typer.Option(help="Median tokens of a prompt.", rich_help_panel=_LOAD)] = 500,
    output: Annotated[int, typer.Option(help="Median tokens generated.", rich_help_panel=_LOAD)] = 200,
    scale: Annotated[float, typer.Option(help="Factor of all lengths.", rich_help_panel=_LOAD)] = 1.0,
    burst: Annotated[
        float, typer.Option(help="Factor of the rate for 20 s every 5 minutes.", rich_help_panel=_LOAD)
    ] = 1.0,
    diurnal: Annotated[float, typer.Option(help="Swing of the rate over a day, 0..1.", rich_help_panel=_LOAD)] = 0.0,
    ramp: Annotated[float, typer.Option(help="Seconds to the full rate.", rich_help_panel=_LOAD)] = 0.0,
    turns: Annotated[float, typer.Option(help="Mean turns of a session.", rich_help_panel=_LOAD)] = 1.0,
    idle: Annotated[float, typer.Option(help="Mean seconds between two turns.", rich_help_panel=_LOAD)] = 30.0,
    context_ttl: Annotated[
        float,
        typer.Option(help="A session idle for so many seconds loses its context; 0: never.", rich_help_panel=_LOAD),
    ] = 0.0,
    mixed_tenants: Annotated[int, typer.Option(help="Tenants t1, t2, ...", rich_help_panel=_LOAD)] = 1,
    interrupt_rate: Annotated[
        float, typer.Option(help="Share of requests whose client goes away.", rich_help_panel=_LOAD)
    ] = 0.02,
    long_tail: Annotated[
        float, typer.Option(help="Share of prompts above 4,096 tokens.", rich_help_panel=_LOAD)
    ] = 0.02,
    blocks: Annotated[int, typer.Option(help="Blocks of the pool.", rich_help_panel=_ENGINE)] = 4000,
    block_size: Annotated[int, typer.Option(help="Tokens of a block.", rich_help_panel=_ENGINE)] = 16,
    batch_size: Annotated[int, typer.Option(help="Requests that run at most.", rich_help_panel=_ENGINE)] = 64,
    speculation: Annotated[
        int | None,
        typer.Option(
            help="Drafted tokens; 0: none (the default, unless the fault needs them).", rich_help_panel=_ENGINE
        ),
    ] = None,
    prefix_caching: Annotated[bool, typer.Option(help="Reuse what was computed.", rich_help_panel=_ENGINE)] = True,
    priority: Annotated[
        float, typer.Option(help="Serve by priority; share of urgent requests.", rich_help_panel=_ENGINE)
    ] = 0.0,
    connector: Annotated[
        str | None,
        typer.Option(help="none, remote or opaque (the default: what the fault needs).", rich_help_panel=_ENGINE),
    ] = None,
    lease: Annotated[float, typer.Option(help="Seconds of the connector's lease.", rich_help_panel=_ENGINE)] = 120.0,
    leak_kind: Annotated[
        list[str] | None, typer.Option(help="A fault; may be repeated; docs/simulator.md.", rich_help_panel=_FAULT)
    ] = None,
    leak_rate: Annotated[float, typer.Option(help="Blocks a minute; 0: the kind's own.", rich_help_panel=_FAULT)] = 0.0,
    leak_blocks: Annotated[int, typer.Option(help="Blocks at a time, instead.", rich_help_panel=_FAULT)] = 0,
    leak_every: Annotated[
        float, typer.Option(help="Seconds between two times; 0: once.", rich_help_panel=_FAULT)
    ] = 0.0,
    leak_tenant: Annotated[str, typer.Option(help="Whose requests; empty: anybody's.", rich_help_panel=_FAULT)] = "",
    onset: Annotated[float, typer.Option(help="Seconds until it begins.", rich_help_panel=_FAULT)] = 600.0,
    fault_seconds: Annotated[float, typer.Option(help="How long; 0: to the end.", rich_help_panel=_FAULT)] = 0.0,
    event: Annotated[
        list[str] | None,
        typer.Option(
            help="Something healthy: KIND@SECONDS, +SECONDS for how long, xSIZE; may be repeated.",
            rich_help_panel=_FAULT,
        ),
    ] = None,
) -> None:
    """Drive vLLM's real scheduler and block pool with the real hooks, in virtual time, and record what an agent sees.

    Needs an environment with vLLM (--engine-python); no GPU. The bundle has the truth as labels: what was planted, when
    and where.

    Examples: kvtide simulate leak.kvtide --leak-kind orphan --leak-rate 12;
    kvtide simulate busy.kvtide --trace mooncake --rate 0.3 --blocks 12000 --event restart@1200
    """
    if spec is not None:
        wanted = _from_file(spec)
    else:
        kinds, events = list(leak_kind or ()), [_event(text) for text in event or ()]
        needed = {name for kind in (*kinds, *(each.kind for each in events)) if (name := _CONNECTORS.get(kind))}
        wanted = _made(
            seconds=3600.0 * hours + 60.0 * minutes or 3600.0,
            seed=seed,
            engine={
                "blocks": blocks,
                "block_size": block_size,
                "running": batch_size,
                "caching": prefix_caching,
                "drafts": (_DRAFTS if "spec_residue" in kinds else 0) if speculation is None else speculation,
                "connector": connector or (min(needed) if needed else "none"),
                "lease_seconds": lease,
                "priority": priority > 0,
            },
            load={
                "trace": trace,
                "rate": rate,
                "prompt": prompt,
                "output": output,
                "scale": scale,
                "burst": burst,
                "diurnal": diurnal,
                "ramp_seconds": ramp,
                "turns": turns,
                "idle_seconds": idle,
                "context_ttl": context_ttl,
                "tenants": mixed_tenants,
                "interrupts": interrupt_rate,
                "long_tail": long_tail,
                "urgent": priority,
            },
            faults=[
                {
                    "kind": kind,
                    "onset": onset,
                    "seconds": fault_seconds,
                    "rate": leak_rate,
                    "blocks": leak_blocks,
                    "every": leak_every,
                    "tenant": leak_tenant,
                }
                for kind in kinds
            ],
            events=events,
        )
    _run(wanted, out, engine_python, as_json=as_json)


def _run(spec: Spec, out: Path, python: Path | None, *, as_json: bool) -> None:
    import signal

    from agent.simulate.run import simulate as run

    # Who ends it by SIGTERM gets what ^C gives: a whole bundle, and no draft that stays.
    stop = _Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        summary = run(spec, out, python, progress=stop.check)
    except KeyboardInterrupt:
        if out.exists():
            typer.echo(f"kvtide: interrupted; {out} has what was done until then", err=True)
        raise
    if as_json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(summary)).decode())
    else:
        typer.echo("\n".join(_lines(spec, summary, out)))


class _Stop:
    """A signal's handler: ends what runs at once. Python drops what is raised inside a destructor, and then the next
    state ends it.
    """

    def __init__(self) -> None:
        self._asked = False

    def __call__(self, _number: int, _frame: object) -> None:
        self._asked = True
        raise KeyboardInterrupt

    def check(self, _seconds: float) -> None:
        """Raise where it has been asked to end."""
        if self._asked:
            raise KeyboardInterrupt


def _lines(spec: Spec, summary: Summary, out: Path) -> list[str]:
    from agent.plain import plain
    from agent.units import human_bytes, human_seconds
    from engine_hooks.simulator.clock import MONOTONIC_START

    lines = [
        f"{out}: {summary.states:,} states, {human_bytes(out.stat().st_size)}; vLLM {summary.engine_version}, "
        f"seed {spec.seed}",
        f"{human_seconds(summary.seconds)} of virtual time in {human_seconds(summary.wall_seconds)}: "
        f"{summary.ratio:,.0f} times as fast",
    ]
    for label in summary.labels:
        since = label.onset - MONOTONIC_START
        until = "the end" if label.ended is None else human_seconds(label.ended - MONOTONIC_START)
        lines.append(f"{label.kind} on {label.subject}: from {human_seconds(since)} to {until} ({label.note})")
    if not summary.labels:
        lines.append("nothing is wrong in it" if not spec.faults else "the fault found nothing to work on")
    return [plain(line) for line in lines]


def _from_file(path: Path) -> Spec:
    import msgspec

    from agent.simulate.run import Spec

    try:
        return msgspec.json.decode(path.read_bytes(), type=Spec)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no spec: {error}") from None


def _made(**values: Any) -> Spec:
    import msgspec

    from agent.simulate.run import Spec

    try:
        return msgspec.convert(values, Spec, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"an option is out of range: {error}") from None


def _event(text: str) -> Event:
    from agent.simulate.run import Event

    match = _EVENT.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        at, seconds, size = (float(match[key] or 0) for key in ("at", "seconds", "size"))
    except ValueError:
        raise ConfigError(f"--event {text!r}: say KIND@SECONDS, as in restart@1200 or burst@600+30x4") from None
    return Event(kind=match["kind"], at=at, seconds=seconds, size=size)
