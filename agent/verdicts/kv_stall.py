"""kv_stall: there is work, and no token is scheduled, whatever the pool says."""

from __future__ import annotations

from agent.retained import count_of
from agent.units import human_seconds
from agent.verdicts.base import Facts, Finding
from agent.verdicts.harm import held_ratio
from agent.verdicts.sleep_residue import asleep
from agent.waiting import PAUSED, STALLED_PAGE_SECONDS, STALLED_SECONDS, remedy_of, words
from engine_hooks.detail import WaitingRow

EMPTY = 0.02  # held of a pool that is as good as empty
FULL = 0.85

MEMORY = "memory"  # a reason to wait
KEPT = ("deferred_frees", "delayed_frees", "remote_kv")  # reasons to wait that have an end of their own
LOST = 0.5  # leaked of what is held
PATIENT = ("grammar", "remote_kv", "lora")  # reasons to wait that can be as long as one request is unlucky
PATIENT_SECONDS = 60.0
ABORT_FIRST = "Abort the first request in the queue; if nothing moves then, restart. Evicting frees nothing."
NO_MEMORY = "Memory is not what it waits for: evicting or preempting does nothing."
STUCK = "Those blocks come back neither by waiting nor by resetting the prefix cache: only a restart frees them."
UNPAUSED = "Unless somebody paused it, look into its log and restart it."


class KvStall:
    """Fires after ten seconds without a token while requests run or wait, half a minute on a page; an engine that was
    paused or put to sleep is not stalled.
    """

    kind = "kv_stall"
    confirm_seconds = 2.0
    clear_seconds = 30.0  # a token now and then is one stall

    def judge(self, facts: Facts) -> Finding | None:
        """Return what stands still and why; None when tokens flow, nothing is to do, or it can't be known."""
        if _sleeps(facts):
            return None
        waiting = facts.detail.waiting if facts.detail else None
        if waiting is None:
            return _by_tokens(facts)
        if waiting.stalled_seconds is None or waiting.stalled_seconds < STALLED_SECONDS:
            return None
        # Paused for new requests only, the engine has work that it is told not to do.
        if waiting.stalled_by == PAUSED or (not facts.running and {*waiting.reasons} == {PAUSED}):
            return None
        held, said = _pool(facts)
        return Finding(
            sentence=f"No token has been scheduled for {human_seconds(waiting.stalled_seconds)}, with "
            f"{count_of(facts.running, 'request')} running and {facts.waiting:,} waiting for "
            f"{words(waiting.stalled_by)}.{said}",
            remedy=f"{remedy_of(waiting.stalled_by)}{_no_use(facts)}",
            evidence={
                "stalled_seconds": waiting.stalled_seconds,
                "idle_steps": waiting.idle_steps,
                "running": facts.running,
                "waiting": facts.waiting,
            }
            | held,
            tier="warn" if _may_end(facts, waiting) else "page",
        )


def _may_end(facts: Facts, waiting: WaitingRow) -> bool:
    """Whether it may be that what waits is unlucky and nothing else is there to do."""
    seconds = waiting.stalled_seconds or 0.0
    return not facts.running and waiting.stalled_by in PATIENT and seconds < PATIENT_SECONDS


def _by_tokens(facts: Facts) -> Finding | None:
    """An engine that does not say why: on its page, or with hooks that can't tell."""
    still = facts.signals.still_seconds if facts.signals else None
    if still is None or still < STALLED_PAGE_SECONDS or not (facts.running or facts.waiting):
        return None
    held, said = _pool(facts)
    running = f"{count_of(facts.running, 'request')} running and " if facts.running else ""
    if _nothing_runs(facts):
        running = "none running and "
    return Finding(
        sentence=f"No token for {human_seconds(still)}, with {running}{facts.waiting:,} waiting.{said}",
        remedy=f"{UNPAUSED}{_no_use(facts)}",
        evidence={"stalled_seconds": still, "running": facts.running, "waiting": facts.waiting} | held,
    )


def _pool(facts: Facts) -> tuple[dict[str, float], str]:
    """Return how much is held, as evidence and as a sentence where that says what it is or is not, led by a space."""
    held = held_ratio(facts.reading)
    if held is None:
        return {}, ""
    if held <= EMPTY:
        return {"held_ratio": held}, f" The KV pool is empty.{_too_large(facts)}"
    if held >= FULL and _nothing_runs(facts):
        return {"held_ratio": held}, f" Nothing runs, and {held:.0%} of the KV pool is held all the same."
    return {"held_ratio": held}, ""


def _too_large(facts: Facts) -> str:
    """Return what it means that an empty pool has no room, led by a space; empty where memory is not waited for."""
    row, reading = facts.detail.waiting if facts.detail else None, facts.reading
    if row is None or reading is None or reading.capacity is None or not row.reasons.get(MEMORY):
        return ""
    size = f"{reading.capacity:,} blocks"
    if reading.block_tokens:
        size = f"{reading.capacity * reading.block_tokens:,} tokens"
    return (
        f" Either the first request needs more than all of it ({size}) and can never run, or the engine has miscounted."
    )


def _no_use(facts: Facts) -> str:
    """Return what will not help, led by a space; empty where that is not known."""
    held = held_ratio(facts.reading)
    if held is None:
        return ""
    if held <= EMPTY:
        return f" {ABORT_FIRST if _too_large(facts) else NO_MEMORY}"
    return f" {STUCK}" if held >= FULL and _nothing_runs(facts) and not _may_come_back(facts) else ""


def _nothing_runs(facts: Facts) -> bool:
    """Whether it is known that nothing runs: a page may not say it."""
    return not facts.running and (facts.reading is None or facts.reading.running is not None)


def _may_come_back(facts: Facts) -> bool:
    """Whether what is held without a running request is known to be anything else than lost."""
    row, reading = facts.detail.waiting if facts.detail else None, facts.reading
    if row is not None and row.stalled_by in KEPT:
        return True
    return reading is not None and reading.orphaned is not None and reading.orphaned < LOST * (reading.held or 0)


def _sleeps(facts: Facts) -> bool:
    members = facts.engine.members if facts.engine else ()
    rows = [member.allocator.row for member in members if member.up and member.allocator is not None]
    return any(asleep(row) for row in rows)
