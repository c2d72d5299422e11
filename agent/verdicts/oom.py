"""oom: an allocation failed for good, an engine could not start for want of memory, or the kernel killed a process.

Why, is said by :mod:`agent.oom.judge`: truly out, fragmented, foreign, free but unusable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.oom.facts import Foreign
from agent.oom.judge import judge
from agent.oom.log import Failure
from agent.plain import plain
from agent.sources.host.state import KilledState
from agent.state import AgentState, Tier
from agent.subject import Subject
from agent.units import human_seconds
from agent.verdicts.base import Finding, View
from agent.verdicts.who import failed_on, process_subject, process_words, worst
from engine_hooks.allocator import MEMORY, OOM

SHOWN_SECONDS = 600.0
RAISE = (
    "Raise the memory limit of that group, or find what grows in it (host_growth). What the process held is gone; its "
    "supervisor has to start it again."
)


class Oom:
    """Fires on each failure, for ten minutes; those of PyTorch processes of no engine are not to get anybody up."""

    kind = "oom"
    confirm_seconds = 0.0
    clear_seconds = 0.0
    of_absence = True  # what failed stays in the log when its process is gone: the log is what is judged

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the processes in which memory failed lately, each with its last failure."""
        return worst(_all(view))


def _all(view: View) -> Iterator[tuple[Subject, Finding]]:
    state = view.state
    for killed in view.killed:
        if _recent(state.at, killed.at):
            yield process_subject(killed.engine, killed.role, killed.rank), _killed(killed, state.at)
    told: dict[tuple[Subject, Tier], Failure] = {}
    for failure in state.failures:  # newest first; one a process is judged, reading messages takes time
        if failure.event.kind in (OOM, MEMORY) and _recent(state.at, failure.event.at):
            subject = process_subject(failure.engine, failure.role, failure.rank, failure.process)
            told.setdefault((subject, _tier(failure)), failure)
    for (subject, _), failure in told.items():
        finding = _failed(failure, state)
        if finding is not None:
            yield subject, finding


def _tier(failure: Failure) -> Tier:
    """What only words said, before anything failed, and what belongs to no engine, gets nobody up."""
    return "page" if failure.engine and failure.event.kind == OOM else "warn"


def _recent(now: float, at: float) -> bool:
    return now - at < SHOWN_SECONDS  # by an engine's clock, which may go before ours


def _failed(failure: Failure, state: AgentState) -> Finding | None:
    event = failure.event
    judged = failure.judgement
    if judged is not None and judged.cause in ("out", "unknown"):
        # Who else is on the device, the process itself often can't know.
        judged = judge(event.message, event, _foreign(failure, state)) or judged
    if judged is None:
        return None
    who = process_words(failure.engine, failure.role, failure.rank, failure.process)
    often = "" if event.count == 1 else f" {event.count:,} times, the last"
    ago = human_seconds(max(0.0, state.at - event.at))
    where = f" in {plain(event.where, 60)}" if event.where else ""
    known: dict[str, float | None] = {
        "failures": event.count,
        "requested_bytes": event.requested_bytes,
        "device_free_bytes": event.device_free_bytes,
        "reserved_bytes": event.reserved_bytes,
        "allocated_bytes": event.allocated_bytes,
        "free_bytes": event.free_bytes,
        "largest_free_bytes": event.largest_free_bytes,
    }
    return Finding(
        f"Out of memory in {who}{where}{often} {ago} ago, {_CAUSES[judged.cause]}: {judged.sentence}",
        judged.remedy,
        {name: value for name, value in known.items() if value is not None},
        tier=_tier(failure),
    )


_CAUSES = {
    "out": "truly out",
    "fragmented": "fragmented",
    "foreign": "taken by others",
    "unusable": "free but unusable",
    "host": "of the host",
    "unknown": "cause not told",
}


def _foreign(failure: Failure, state: AgentState) -> Foreign | None:
    """What others hold of that device, by the waterfall; None where it isn't known which device it was."""
    label = failed_on(state, failure)
    for waterfall in state.waterfalls:
        if waterfall.gpu == label:
            parts = [part for part in waterfall.parts if part.part == "other_processes"]
            return Foreign(sum(part.bytes for part in parts), sum(part.count for part in parts)) if parts else None
    return None


def _killed(killed: KilledState, now: float) -> Finding:
    who = process_words(killed.engine, killed.role, killed.rank)
    ago = human_seconds(max(0.0, now - killed.at))
    if killed.certain:
        text = f"The kernel killed {who} (process {killed.pid}) {ago} ago: its memory group had reached its limit."
    else:
        where = f"the group {plain(killed.counted_by, 80)}" if killed.counted_by else "this host"
        text = (
            f"{who[:1].upper()}{who[1:]} (process {killed.pid}) ended {ago} ago, when the kernel killed a process for "
            f"memory in {where}: most likely this one."
        )
    return Finding(
        f"{text} This is host memory, not the GPU's.",
        RAISE,
        {"pid": killed.pid, "age_seconds": max(0.0, now - killed.at)},
        tier="page" if killed.certain or killed.counted_by else "warn",
    )
