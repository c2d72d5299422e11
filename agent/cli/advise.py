"""``kvtide advise``: which settings of the KV pool suit a load."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent.errors import ConfigError, KvtideError
from agent.plain import plain

if TYPE_CHECKING:
    from agent.advise.compare import Tried
    from agent.advise.grid import Trial
    from agent.simulate.run import Spec

_ENGINE, _LOAD, _TRIED, _RUN = "The engine in use", "The load", "What is tried", "The run"
FORMATS = {".html": "html", ".htm": "html", ".md": "markdown"}


def advise(
    *,
    trace: Annotated[
        str, typer.Option(help="poisson, mooncake, or a JSON Lines file recorded in its shape.", rich_help_panel=_LOAD)
    ] = "poisson",
    rate: Annotated[float, typer.Option(help="Requests a second.", rich_help_panel=_LOAD)] = 1.5,
    prompt: Annotated[int, typer.Option(help="Median tokens of a prompt.", rich_help_panel=_LOAD)] = 500,
    output: Annotated[int, typer.Option(help="Median tokens generated.", rich_help_panel=_LOAD)] = 200,
    turns: Annotated[float, typer.Option(help="Mean turns of a session.", rich_help_panel=_LOAD)] = 1.0,
    tenants: Annotated[int, typer.Option(help="Tenants, the first the largest.", rich_help_panel=_LOAD)] = 1,
    blocks: Annotated[int, typer.Option(help="Blocks of the pool.", rich_help_panel=_ENGINE)] = 4000,
    block_size: Annotated[int, typer.Option(help="Tokens of a block.", rich_help_panel=_ENGINE)] = 16,
    batch_size: Annotated[int, typer.Option(help="Requests that run at most.", rich_help_panel=_ENGINE)] = 64,
    watermark: Annotated[
        float, typer.Option(help="Share of the pool kept free at admission.", rich_help_panel=_ENGINE)
    ] = 0.0,
    sizes: Annotated[str, typer.Option(help="Block sizes, with commas.", rich_help_panel=_TRIED)] = "8,16,32,64,128",
    pools: Annotated[
        str, typer.Option(help="Sizes of the pool, against the one in use.", rich_help_panel=_TRIED)
    ] = "0.7,0.85,1,1.15,1.3",
    watermarks: Annotated[str, typer.Option(help="Watermarks.", rich_help_panel=_TRIED)] = "0,0.01,0.03,0.05",
    utilisations: Annotated[
        str, typer.Option(help="gpu_memory_utilization to try; needs the two below.", rich_help_panel=_TRIED)
    ] = "",
    device_gib: Annotated[
        float | None, typer.Option(help="Memory of one device.", min=0.1, rich_help_panel=_TRIED)
    ] = None,
    other_gib: Annotated[
        float | None,
        typer.Option(help="What of it the pool does not get: weights, activations.", min=0, rich_help_panel=_TRIED),
    ] = None,
    token_kib: Annotated[
        float, typer.Option(help="KV of one token on one device.", min=0.001, rich_help_panel=_TRIED)
    ] = 128.0,
    minutes: Annotated[
        float, typer.Option(help="Virtual minutes of each run.", min=1, max=1440, rich_help_panel=_RUN)
    ] = 10.0,
    seeds: Annotated[
        int, typer.Option(help="Runs of each value, with loads of the same kind.", min=2, max=20, rich_help_panel=_RUN)
    ] = 3,
    engine_python: Annotated[
        Path | None,
        typer.Option(help="Python of an environment with vLLM; or KVTIDE_ENGINE_PYTHON.", rich_help_panel=_RUN),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write a page with pictures there, .html or .md.", rich_help_panel=_RUN)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what was found as JSON.", rich_help_panel=_RUN)
    ] = False,
) -> None:
    """Try settings of the KV pool on vLLM's real scheduler and block pool with one load, and say which suit it.

    Waste, preemptions, rebuild and a proxy of the P99 for each value, with how far runs were apart. No GPU is needed.

    Examples: kvtide advise --rate 3 --prompt 2000 --blocks 12000;
    kvtide advise --trace mooncake --rate 0.3 --utilisations 0.85,0.9,0.95 --device-gib 80 --other-gib 20
    """
    import msgspec

    from agent.advise.compare import tried
    from agent.advise.grid import Device, trials
    from agent.advise.measure import measure
    from agent.simulate.process import Simulator
    from agent.simulate.run import Engine

    if bool(utilisations) != (device_gib is not None and other_gib is not None):
        raise ConfigError("--utilisations: needs --device-gib and --other-gib, and they need it")
    device = None
    if device_gib is not None and other_gib is not None:
        device = Device(device_gib * (1 << 30), other_gib * (1 << 30), token_kib * 1024)
    try:
        engine = msgspec.convert(
            {"blocks": blocks, "block_size": block_size, "running": batch_size, "watermark": watermark}, Engine
        )
        load = {"trace": trace, "rate": rate, "prompt": prompt, "output": output, "turns": turns, "tenants": tenants}
        plans = list(
            trials(
                engine,
                block_sizes=[int(each) for each in _numbers(sizes, "--sizes", 1, 1024)],
                pools=_numbers(pools, "--pools", 0.01, 100),
                watermarks=_numbers(watermarks, "--watermarks", 0, 1),
                device=device,
                utilisations=_numbers(utilisations, "--utilisations", 0.01, 1) if utilisations else (),
            )
        )
        specs = [[_spec(plan, load, seed, minutes) for seed in range(seeds)] for plan in plans]
    except msgspec.ValidationError as error:
        raise ConfigError(f"an option is out of range: {error}") from None
    results = []
    with Simulator(engine_python) as simulator, _progress(len(plans) * seeds) as step:
        for plan, wanted in zip(plans, specs, strict=True):
            runs = []
            for spec in wanted:
                step(f"{plan.setting} {plan.value}")
                runs.append(measure(spec, simulator))
            results.append(tried(plan, runs))
    words = f"{trace}, {rate:g} requests a second, {minutes:g} virtual minutes, {seeds} seeds"
    _tell(results, words, out, as_json=as_json)


def _spec(plan: Trial, load: dict[str, object], seed: int, minutes: float) -> Spec:
    import msgspec

    from agent.simulate.run import Spec, check

    wanted = {"seconds": 60.0 * minutes, "seed": seed, "engine": plan.engine, "load": load}
    spec = msgspec.convert(wanted, Spec, from_attributes=True)
    check(spec)
    return spec


def _numbers(text: str, option: str, least: float, most: float) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(least <= value <= most for value in values):
        raise ConfigError(f"{option}: {text!r}: must be numbers from {least:g} to {most:g} with commas between them")
    return values


@contextmanager
def _progress(runs: int) -> Iterator[Callable[[str], None]]:
    """Show on a terminal's standard error how far it has come."""
    from rich.progress import Progress

    from agent.faces.terminal import Terminal

    terminal = Terminal(stderr=True)
    with Progress(console=terminal, disable=not terminal.is_terminal, transient=True) as progress:
        task = progress.add_task("", total=runs)
        done = 0

        def step(name: str) -> None:
            nonlocal done
            progress.update(task, description=name, completed=done)
            done += 1

        yield step


def _tell(results: list[Tried], words: str, out: Path | None, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(results)).decode())
        return
    from agent.advise.told import document

    told = document(results, words)
    if out is None:
        from rich.markdown import Markdown

        from agent.faces.terminal import for_reports
        from agent.report.markdown import render as as_text

        for_reports().print(Markdown(as_text(told)))
        return
    if FORMATS.get(out.suffix.lower(), "html") == "html":
        from agent.report.html import render
    else:
        from agent.report.markdown import render
    try:
        out.write_text(render(told), encoding="utf-8")
    except OSError as error:
        raise KvtideError(f"{out}: can't be written: {error.strerror or error}") from None
    typer.echo(f"The advice is in {plain(str(out))}")
