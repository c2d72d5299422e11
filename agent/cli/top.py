"""``kvtide top``: a live view of a node, or of a recorded bundle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from agent.cli.quick import DEFAULT_URL
from agent.errors import ConfigError
from agent.top.seen import View
from agent.top.watch import watch, where_of


def top(
    *,
    url: Annotated[str, typer.Option(envvar="KVTIDE_URL", help="The agent's address.")] = DEFAULT_URL,
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
    watch(url, replay=replay, speed=speed, view=view, engine=engine, mono=mono)


def _once(url: str, replay: Path | None, view: View, engine: str | None, *, mono: bool) -> None:
    from agent.faces.terminal import for_reports
    from agent.top.look import Look
    from agent.top.once import last_of, of_state, show

    if replay is not None:
        seen = last_of(replay)
    else:
        from agent.cli.client import AgentClient

        seen = of_state(url, AgentClient(url).state())
    show(seen, where_of(view, engine), Look(mono), for_reports())


def _json(url: str, replay: Path | None) -> None:
    if replay is None:
        from agent.cli.client import AgentClient

        typer.echo(AgentClient(url).state_text())
        return
    import msgspec

    from agent.top.once import last_of

    typer.echo(msgspec.json.format(msgspec.json.encode(last_of(replay).state), indent=2).decode())
