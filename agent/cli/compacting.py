"""Waits for the end of a compaction that was ordered: by what the engine tells of it, once a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from agent.errors import KvtideError
from agent.state import AgentState
from engine_hooks.detail import CompactionRow

POLL_SECONDS = 0.5
NUMBER = "orders_total"  # in what an engine answers: which order of its life this is
Read = Callable[[], AgentState]


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a compaction has ended. Numbers are None where nobody knows them.

    ``state``: reached (all that was to go is out of the pool, and what can be given back is), stopped halfway, needed
    (blocks have come back), overtaken (by its own end or another order), lost (the engine is gone), unfinished (it went
    on when the time was over), unknown. ``reason`` is for people. ``moved_blocks`` and ``dropped_blocks``: by this
    order; ``offline_blocks``: of ``wanted_blocks``, now; ``released_bytes``: of those that are offline, on all workers.
    ``seconds``: from the engine's answer to where this was seen: it tells of itself once a second or two.
    """

    state: str
    reason: str = ""
    moved_blocks: int | None = None
    dropped_blocks: int | None = None
    offline_blocks: int | None = None
    wanted_blocks: int | None = None
    released_bytes: int | None = None
    seconds: float | None = None


def wait(
    read: Read,
    answer: dict[str, Any],
    most_seconds: float,
    progress: Callable[[End], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> End:
    """Return the end of the action in force that ``answer`` tells of, within so many seconds. Never raises what
    ``read`` raises: it is told. ``progress`` is called with each look that found it under way.
    """
    outcome: dict[str, Any] = next(iter(answer.get("outcomes") or ()), {})
    effect = outcome.get("effect") or {}
    if NUMBER not in effect:
        return End(state="unknown", reason="the hooks of this engine are older than this command, and do not tell")
    began = clock()
    while True:
        try:
            end = look(read(), str(outcome.get("target")), effect)
        except (KvtideError, msgspec.MsgspecError) as error:
            return End(state="unknown", reason=str(error))
        seconds = round(clock() - began, 1)
        end = msgspec.structs.replace(end, seconds=seconds)
        if end.state != "unfinished":
            return end
        if seconds >= most_seconds:
            return msgspec.structs.replace(end, reason=end.reason or "it goes on")
        progress(end)
        sleep(POLL_SECONDS)


def look(state: AgentState, instance: str, effect: dict[str, Any]) -> End:
    """Return how the order stands by one state; ``unfinished`` while it goes on, or nothing is told of it yet.

    ``instance``: who was ordered; ``effect``: what it answered.
    """
    engine = next((each for each in state.engines if each.instance == instance), None)
    if engine is None or engine.phase == "lost":
        why = engine.reason if engine is not None else ""
        return End(state="lost", reason=f"the engine is gone{f': {why}' if why else ''}")
    row = engine.detail.compaction if engine.detail is not None else None
    silent = "" if engine.phase == "live" else f"the engine is silent{f': {engine.reason}' if engine.reason else ''}"
    if row is None or row.orders_total < effect[NUMBER]:
        return End(state="unfinished", reason=silent)
    if row.orders_total > effect[NUMBER]:
        why = row.reason or "it was undone, its time is over, or the pool's size was ordered anew"
        return End(state="overtaken", reason=why, offline_blocks=row.offline, released_bytes=row.released_bytes)
    now = "unfinished" if silent else _state(row, effect)
    return End(
        state=now,
        reason=silent or row.reason or ("blocks came back, for they were needed" if now == "needed" else ""),
        moved_blocks=row.moved_total + row.moved_idle_total - int(effect["moved_blocks_total"]),
        dropped_blocks=row.dropped_total - int(effect["dropped_blocks_total"]),
        offline_blocks=row.offline,
        wanted_blocks=int(effect["offline_blocks"]),
        released_bytes=row.released_bytes,
    )


def _state(row: CompactionRow, effect: dict[str, Any]) -> str:
    wanted, grows = int(effect["offline_blocks"]), effect["after_blocks"] > effect["before_blocks"]
    if row.state == "stopped":
        return "stopped"
    if row.state == "growing":  # by order, or because blocks were needed
        return "unfinished" if grows and row.offline > wanted else "needed"
    if row.state in ("shrunk", "idle"):
        return "reached" if row.offline == wanted else "needed"
    return "unfinished"
