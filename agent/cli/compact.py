"""``kvtide compact``: make an engine's KV pool smaller while it serves, and have its memory given back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.minutes import minutes_of
from agent.errors import ConfigError

if TYPE_CHECKING:
    from agent.cli.compacting import End
    from agent.cli.control import ControlClient

MOST_BLOCKS, MOST_BYTES = 1 << 40, 1 << 62  # an order takes no more
_UNITS = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40, "": 1}
# What an engine tells of it, in the order in which a person wants to know.
_TOLD = (
    ("before_blocks", "blocks in the pool now"),
    ("after_blocks", "blocks in the pool then"),
    ("held_blocks", "blocks held by requests"),
    ("move_blocks", "held blocks to be moved"),
    ("move_idle_blocks_at_most", "cached blocks to be moved, at most"),
    ("drop_idle_blocks_at_least", "cached blocks to be lost, at least"),
    ("offline_blocks", "blocks offline then"),
    ("release_bytes", "bytes given back then, on all workers"),
)
_ENDED = {
    "reached": "the pool is as it was asked for",
    "stopped": "it stopped halfway",
    "needed": "the pool is needed, and grows",
    "overtaken": "it is not in force any more",
    "lost": "its end was not seen",
    "unfinished": "it has not come to its end",
    "unknown": "its end is not known",
}


def compact(
    engine: Annotated[str, typer.Argument(help="Which engine, by its label.")],
    socket: Annotated[
        Path, typer.Option(envvar="KVTIDE_SOCKET", help="The link's socket; the control socket is beside it.")
    ] = Path("/run/kvtide/agent.sock"),
    *,
    to: Annotated[int | None, typer.Option(min=1, help="Blocks that the pool is to have.")] = None,
    free: Annotated[str | None, typer.Option(help="What is to come free, on all workers: bytes, or 20GiB.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would move and be freed.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait until it has come to its end, and tell which.")] = True,
    seconds: Annotated[float, typer.Option(min=0, help="How long its end is waited for, at most.")] = 600.0,
    minutes: Annotated[float | None, typer.Option(help="For so long; else until it is undone.")] = None,
    why: Annotated[str, typer.Option(help="For the journal.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Move what requests hold to the front of the KV pool and take the rest out of it, while the engine serves.

    The pool grows back by itself before a request is refused blocks. The engine must allow the lever (KVTIDE_LEVERS).
    Ends with 0 only where the pool has become what was asked for; with --no-wait, where that was begun.

    Examples: kvtide compact llama --free 20GiB --dry-run; kvtide compact llama --to 4000 --minutes 60
    """
    from agent.cli.control import ControlClient

    body = {
        "lever": "compact",
        "engine": engine,
        "arguments": arguments_of(to, free),
        "minutes": None if minutes is None else minutes_of(minutes),
        "attempt": dry_run,
        "why": why,
    }
    client = ControlClient(socket)
    answer: dict[str, Any] = client.post("/api/v1/orders", body)
    refused, end = answer.get("phase") in ("refused", "failed"), None
    if not as_json:
        typer.echo(plain_text(answer))
    if wait and not dry_run and not refused:
        end = _end(client, answer, seconds)
    if as_json:
        import msgspec

        typer.echo(json.dumps(answer if end is None else answer | {"end": msgspec.to_builtins(end)}, indent=2))
    elif end is not None:
        typer.echo(end_text(end))
    if refused or (end is not None and end.state != "reached"):
        raise typer.Exit(1)


def _end(client: ControlClient, answer: dict[str, Any], seconds: float) -> End:
    """Wait for the end; a terminal is told of the way there."""
    import sys

    import msgspec

    from agent.cli.compacting import wait as waited
    from agent.state import AgentState

    def progress(now: End) -> None:
        if sys.stderr.isatty() and now.moved_blocks is not None:
            typer.echo(
                f"\r  {now.moved_blocks:,} blocks moved, {now.offline_blocks:,} of {now.wanted_blocks:,} offline",
                nl=False,
                err=True,
            )

    end = waited(lambda: msgspec.json.decode(client.get("/api/v1/state"), type=AgentState), answer, seconds, progress)
    if sys.stderr.isatty():
        typer.echo("\r\x1b[K", nl=False, err=True)
    return end


def arguments_of(to: int | None, free: str | None) -> dict[str, int]:
    """Return the lever's arguments; raises :class:`ConfigError` unless just one of the two is given."""
    if (to is None) == (free is None):
        given = "both were given" if to is not None else "such as --free 20GiB or --to 4000"
        raise ConfigError(f"one of --free and --to must say how much: {given}")
    if to is not None and to > MOST_BLOCKS:
        raise ConfigError(f"--to: {to}: must be {MOST_BLOCKS} at most")
    return {"to_blocks": to} if to is not None else {"free_bytes": bytes_of(free or "")}


def bytes_of(text: str) -> int:
    """Return a size such as 1073741824, 512MiB or 1.5GiB in bytes; raises :class:`ConfigError`."""
    number = text.strip().rstrip("KMGTIBkmgtib")
    unit = _UNITS.get(text.strip()[len(number) :].upper())
    try:
        size = int(float(number) * (unit or 0))
    except (ValueError, OverflowError):
        size = 0
    if unit is None or not 0 < size <= MOST_BYTES:
        raise ConfigError(f"--free: {text!r}: must be bytes above 0, or such a number with KiB, MiB, GiB or TiB")
    return size


def plain_text(answer: dict[str, Any]) -> str:
    """Return what a person reads: how it stands, and each engine process's numbers."""
    from agent.plain import plain

    reason = str(answer.get("reason") or "")
    lines = [plain(f"action {answer.get('id')}: {_begun(str(answer.get('phase')), reason)}")]
    for outcome in answer.get("outcomes") or ():
        detail = outcome.get("detail")
        if detail and detail not in reason:
            lines.append(plain(f"  {detail}"))
        effect = outcome.get("effect") or {}
        lines += [f"  {effect[name]:>16,} {words}" for name, words in _TOLD if name in effect]
    return "\n".join(lines)


def _begun(phase: str, reason: str) -> str:
    if phase == "would":
        return f"nothing was done; it would{f', but {reason}' if reason else ''}:"
    return f"{phase.replace('_', ' ')}{f': {reason}' if reason else ''}"


def end_text(end: End) -> str:
    """Return what a person reads of the end: what came of it, and its numbers as far as they are known."""
    from agent.plain import plain
    from agent.units import human_seconds

    after = "" if end.seconds is None else f" after {human_seconds(end.seconds)}"
    lines = [plain(f"{_ENDED[end.state]}{after}{f': {end.reason}' if end.reason else ''}")]
    of = "" if end.wanted_blocks is None else f", of {end.wanted_blocks:,} that were to go"
    told = (
        (end.moved_blocks, "blocks moved"),
        (end.dropped_blocks, "cached blocks lost"),
        (end.offline_blocks, f"blocks offline{of}"),
        (end.released_bytes, "bytes given back, on all workers"),
    )
    return "\n".join([*lines, *(f"  {number:>16,} {words}" for number, words in told if number is not None)])
