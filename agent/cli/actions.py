"""``kvtide actions``: what the agent has done and why, and what a person orders."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from agent.cli import fleet
from agent.cli.minutes import minutes_of
from agent.errors import ConfigError

app = typer.Typer(
    help="Show what the agent does about verdicts, take it back, forbid it, or order it.", no_args_is_help=True
)

app.add_typer(fleet.app, name="fleet")

Socket = Annotated[
    Path, typer.Option(envvar="KVTIDE_SOCKET", help="The link's socket; the control socket is beside it.")
]
Directory = Annotated[
    Path, typer.Option(envvar="KVTIDE_STATE_DIRECTORY", help="Where the journal is, should no agent answer.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_SOCKET, _DIRECTORY = Path("/run/kvtide/agent.sock"), Path("/var/lib/kvtide")


@app.command("list")
def list_actions(
    socket: Socket = _SOCKET,
    state_directory: Directory = _DIRECTORY,
    *,
    as_json: AsJson = False,
    most: Annotated[int, typer.Option(min=1, max=1000, help="So many, newest first.")] = 20,
) -> None:
    """List what was done, newest first, and what was refused. Without an agent the journal is read.

    Examples: kvtide actions list; kvtide actions list --json | jq '.actions[0]'
    """
    from agent.cli.looking_up import looked_up
    from agent.faces.actions import listing

    found = looked_up(socket, state_directory, most)
    _print(found.as_json() if as_json else listing(found), as_json=as_json)


@app.command()
def explain(
    action: Annotated[str, typer.Argument(help="Its id, as listed.")],
    socket: Socket = _SOCKET,
    state_directory: Directory = _DIRECTORY,
    *,
    as_json: AsJson = False,
) -> None:
    """Tell why an action was taken, on which evidence, what each process answered, and what came of it.

    Example: kvtide actions explain 0198f2c4
    """
    from agent.cli.looking_up import one
    from agent.faces.actions import explanation

    found = one(socket, state_directory, action)
    _print(found.as_json() if as_json else explanation(found), as_json=as_json)


@app.command()
def undo(
    action: Annotated[str, typer.Argument(help="Its id, as listed.")],
    socket: Socket = _SOCKET,
    *,
    as_json: AsJson = False,
) -> None:
    """Take back an action that is in force, now.

    Example: kvtide actions undo 0198f2c4
    """
    if not action:
        raise ConfigError("ACTION: must be an id; kvtide actions list shows which there are")
    answer = _post(socket, f"/api/v1/actions/{quote(action, safe='')}/undo")
    _tell(answer, f"action {action}: {_phase(answer)}", as_json=as_json)


@app.command()
def order(
    lever: Annotated[str, typer.Argument(help="Which lever, such as active_cap.")],
    engine: Annotated[str, typer.Argument(help="On which engine, by its label.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="requests=20, shed=true, concurrency.acme=2 (an entry of a table).")
    ] = None,
    socket: Socket = _SOCKET,
    *,
    minutes: Annotated[float | None, typer.Option(help="For so long; else until it is undone.")] = None,
    attempt: Annotated[bool, typer.Option("--try", help="Only ask the engine what it would do.")] = False,
    why: Annotated[str, typer.Option(help="For the journal.")] = "",
    as_json: AsJson = False,
) -> None:
    """Pull a lever on an engine now, whatever the policy's mode is. The engine must allow it (KVTIDE_LEVERS).

    Example: kvtide actions order admission llama concurrency.acme=2 --minutes 30
    """
    body = {
        "lever": lever,
        "engine": engine,
        "arguments": arguments_of(arguments or []),
        "minutes": None if minutes is None else minutes_of(minutes),
        "attempt": attempt,
        "why": why,
    }
    answer = _post(socket, "/api/v1/orders", body, slow=lever in ("restart", "sleep"))
    _tell(answer, f"action {answer.get('id')}: {_phase(answer)}", as_json=as_json)
    if answer.get("phase") in ("refused", "failed"):
        raise typer.Exit(1)


@app.command()
def veto(
    lever: Annotated[str, typer.Argument(help="Which lever; * for any.")] = "*",
    engine: Annotated[str, typer.Argument(help="On which engine; * for any.")] = "*",
    socket: Socket = _SOCKET,
    *,
    minutes: Annotated[float, typer.Option(help="For so long.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Keep the agent from pulling a lever; what it has in force there is taken back. Persons' orders go on.

    Example: kvtide actions veto preempt llama --minutes 30
    """
    answer = _post(socket, "/api/v1/veto", {"lever": lever, "engine": engine, "minutes": minutes_of(minutes)})
    _tell(answer, f"vetoed for {minutes:g} min: {lever} on {engine}", as_json=as_json)


@app.command("close-breaker")
def close_breaker(socket: Socket = _SOCKET, *, as_json: AsJson = False) -> None:
    """Let the agent act again after its breaker has opened, with a new budget.

    Example: kvtide actions close-breaker
    """
    answer = _post(socket, "/api/v1/breaker/close")
    _tell(
        answer, "closed" if answer.get("was_open") else "it was closed already; the budget begins anew", as_json=as_json
    )


@app.command()
def off(
    why: Annotated[str, typer.Argument(help="For the journal and for who looks.")] = "",
    socket: Socket = _SOCKET,
    *,
    as_json: AsJson = False,
) -> None:
    """Switch all actions off on this node, and take back what is in force.

    Example: kvtide actions off
    """
    _tell(_post(socket, "/api/v1/off", {"why": why}), "off", as_json=as_json)


@app.command()
def on(socket: Socket = _SOCKET, *, as_json: AsJson = False) -> None:
    """Switch actions on again.

    Example: kvtide actions on
    """
    _tell(_post(socket, "/api/v1/on"), "on", as_json=as_json)


def arguments_of(texts: list[str]) -> dict[str, Any]:
    """Return ``name=value`` pairs as a lever takes them; ``table.entry=number`` goes into a table."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"{text}: must be NAME=VALUE, such as requests=20")
        table, dot, entry = name.partition(".")
        inner = found.setdefault(table, {}) if dot else found
        if not isinstance(inner, dict):
            raise ConfigError(f"{text}: {table} is a value and a table")
        if (key := entry if dot else name) in inner:
            raise ConfigError(f"{text}: {name} is given twice")
        inner[key] = _value(value)
        if isinstance(inner[key], float) and not math.isfinite(inner[key]):
            raise ConfigError(f"{text}: must be a finite number")
    return found


def _value(text: str) -> bool | int | float | str:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _post(socket: Path, path: str, body: object = None, *, slow: bool = False) -> Any:
    """``slow``: what is ordered waits until the engine is drained, and until a successor serves."""
    from agent.cli.control import SUPERVISED_SECONDS, TIMEOUT_SECONDS, ControlClient

    return ControlClient(socket).post(path, body, SUPERVISED_SECONDS if slow else TIMEOUT_SECONDS)


def _phase(answer: dict[str, Any]) -> str:
    reason, phase = answer.get("reason"), str(answer.get("phase")).replace("_", " ")
    changed = answer.get("plan", {}).get("amends") if phase == "done" else ""
    still = f"; it has changed action {changed}, which stays in force: undo that one" if changed else ""
    return f"{phase}{f': {reason}' if reason else ''}{still}"


def _tell(answer: object, text: str, *, as_json: bool) -> None:
    import json

    from agent.plain import plain

    typer.echo(json.dumps(answer, indent=2) if as_json else plain(text))


def _print(what: Any, *, as_json: bool) -> None:
    if as_json:
        typer.echo(what)
        return
    from agent.faces.terminal import Terminal

    Terminal().print(what)
