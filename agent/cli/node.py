"""``kvtide node``: a person holds an engine at the load balancer, rolls it out, and frees it again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agent.cli.minutes import minutes_of

app = typer.Typer(help="Hold an engine at the load balancer, roll it out, free it again.", no_args_is_help=True)

Engine = Annotated[str, typer.Argument(help="Which engine, by its label.")]
Socket = Annotated[
    Path, typer.Option(envvar="KVTIDE_SOCKET", help="The link's socket; the control socket is beside it.")
]
Minutes = Annotated[float | None, typer.Option(help="For so long; else until it is freed.")]
Why = Annotated[str, typer.Option(help="For the journal and for who looks.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SOCKET = Path("/run/kvtide/agent.sock")
_PATH = "/api/v1/marks"


@app.command()
def drain(
    engine: Engine, socket: Socket = _SOCKET, *, minutes: Minutes = None, why: Why = "", as_json: AsJson = False
) -> None:
    """Give it no new requests; those that it has go on.

    Example: kvtide node drain llama --minutes 30 --why "new driver"
    """
    _mark(socket, "drain", engine, minutes, why, as_json=as_json)


@app.command()
def maint(
    engine: Engine, socket: Socket = _SOCKET, *, minutes: Minutes = None, why: Why = "", as_json: AsJson = False
) -> None:
    """Give it no new requests, and let the load balancer not check it either.

    Example: kvtide node maint llama --why "bad memory module"
    """
    _mark(socket, "maint", engine, minutes, why, as_json=as_json)


@app.command()
def up(
    engine: Engine, socket: Socket = _SOCKET, *, minutes: Minutes = None, why: Why = "", as_json: AsJson = False
) -> None:
    """Give it all its share, whatever is measured.

    Example: kvtide node up llama --minutes 10
    """
    _mark(socket, "up", engine, minutes, why, as_json=as_json)


@app.command()
def rollout(
    engine: Engine, socket: Socket = _SOCKET, *, minutes: Minutes = None, why: Why = "", as_json: AsJson = False
) -> None:
    """Keep the agent's hands off it while somebody rolls it out: no lever is pulled there, no weight moved.

    Example: kvtide node rollout llama --minutes 45 --why v2.3
    """
    _mark(socket, "rollout", engine, minutes, why, as_json=as_json)


@app.command()
def free(engine: Engine, socket: Socket = _SOCKET, *, as_json: AsJson = False) -> None:
    """Let it be judged again.

    Example: kvtide node free llama
    """
    from agent.cli.control import ControlClient

    _tell(ControlClient(socket).post(_PATH, {"engine": engine}), f"{engine}: nobody holds it", as_json=as_json)


@app.command("list")
def list_marks(socket: Socket = _SOCKET, *, as_json: AsJson = False) -> None:
    """List what persons hold by these commands.

    Example: kvtide node list --json
    """
    import msgspec

    from agent.cli.control import ControlClient

    marks: list[dict[str, Any]] = msgspec.json.decode(ControlClient(socket).get(_PATH))
    lines = [f"{each['engine']}: {each['mark']}, by {each['by']}{_until(each)}{_because(each)}" for each in marks]
    _tell(marks, "\n".join(lines) or "nobody holds anything", as_json=as_json)


def _mark(socket: Path, mark: str, engine: str, minutes: float | None, why: str, *, as_json: bool) -> None:
    from agent.cli.control import ControlClient

    known = None if minutes is None else minutes_of(minutes)
    body = {"engine": engine, "mark": mark, "minutes": known, "why": why}
    answer = ControlClient(socket).post(_PATH, body)
    engines = answer.pop("engines", None)  # an agent of before does not say
    _tell(answer, f"{engine}: {mark}{_until(answer)}", as_json=as_json)
    if engines is not None:
        _warn_of_no_engine(engines, engine)


def _warn_of_no_engine(known: list[str], engine: str) -> None:
    """Say that none has this name, to stderr: it may be on its way, or the name is mistyped."""
    from agent.plain import plain

    if engine not in known:
        there = ", ".join(known) or "none"
        typer.echo(
            plain(f"No engine is called {engine!r} here now: it holds once one is. There are: {there}"), err=True
        )


def _until(mark: dict[str, Any]) -> str:
    import time

    until = mark.get("until")
    return "" if until is None else f", until {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(until))}"


def _because(mark: dict[str, Any]) -> str:
    return f": {mark['why']}" if mark.get("why") else ""


def _tell(answer: object, text: str, *, as_json: bool) -> None:
    import json

    from agent.plain import plain_lines

    typer.echo(json.dumps(answer, indent=2) if as_json else plain_lines(text))
