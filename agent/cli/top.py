"""``kvtide top``: a live view of a node, or of a recorded bundle."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.top.seen import Where

View = Literal["node", "engine", "tenants", "blocks", "verdicts", "actions"]


def top(
    *,
    url: Annotated[str, typer.Option(envvar="KVTIDE_URL", help="The agent's address.")] = "http://127.0.0.1:9477",
    replay: Annotated[
        Path | None, typer.Option(metavar="BUNDLE", help="Play what was recorded (*.kvtide) in place of an agent.")
    ] = None,
    speed: Annotated[float, typer.Option(min=0.125, max=4096.0, help="Replay: so many seconds of it a second.")] = 1.0,
    view: Annotated[View, typer.Option(help="The view to begin with.")] = "node",
    engine: Annotated[str | None, typer.Option(help="The engine to begin with, by its label.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and end; works in a pipe.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the state as JSON and end.")] = False,
    mono: Annotated[bool, typer.Option("--mono", help="No colour; so does NO_COLOR.")] = False,
) -> None:
    """Watch this node live: GPUs, engines, tenants, ages of blocks, verdicts, actions. Press ? for the keys.

    Examples: kvtide top; kvtide top --url gpu-7:9477; kvtide top --replay night.kvtide --speed 10;
    kvtide top --once --view verdicts; kvtide top --json | jq .judgement.verdicts

    Exit codes: 0 done; 1 no agent answers, or the bundle can't be read; 2 wrong use.
    """
    if once and as_json:
        raise ConfigError("--once and --json: one of them")
    mono = mono or bool(os.environ.get("NO_COLOR"))
    if as_json:
        _json(url, replay)
        return
    if once:
        _once(url, replay, view, engine, mono=mono)
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("kvtide top needs a terminal; --once prints one screen, --json the state")

    from agent.top.app import Source, Top
    from agent.top.look import Look
    from agent.top.sources import AgentSource, BundleSource

    source: Source
    if replay is not None:
        source = BundleSource(replay, speed)
    else:

        def opening():  # type: ignore[no-untyped-def]
            from agent.cli.client import AgentClient

            return AgentClient(url).state

        source = AgentSource(url, opening)
    Top(source, Look(mono), _where(view, engine)).run(mouse=False)


def _where(view: View, engine: str | None) -> Where:
    from agent.top.history import Who
    from agent.top.seen import Where

    return Where(view=view, engine=None if engine is None else Who(engine, hooked=True))


def _once(url: str, replay: Path | None, view: View, engine: str | None, *, mono: bool) -> None:
    from agent.faces.terminal import for_reports
    from agent.top.look import Look
    from agent.top.once import last_of, of_state, show

    if replay is not None:
        seen = last_of(replay)
    else:
        from agent.cli.client import AgentClient

        seen = of_state(url, AgentClient(url).state())
    show(seen, _where(view, engine), Look(mono), for_reports())


def _json(url: str, replay: Path | None) -> None:
    if replay is None:
        from agent.cli.client import AgentClient

        typer.echo(AgentClient(url).state_text())
        return
    import msgspec

    from agent.top.once import last_of

    typer.echo(msgspec.json.format(msgspec.json.encode(last_of(replay).state), indent=2).decode())
