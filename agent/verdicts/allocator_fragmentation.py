"""allocator_fragmentation: torch keeps memory that nothing uses, in pieces that serve nobody.

What counts is free memory in segments that are partly in use: segments that are free as a whole torch gives back by
itself before an allocation fails, and private pools (CUDA graphs, sleep mode) are no part of these numbers. Where
segments are expandable, free pages are given back, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.policy.types import AllocatorPolicy
from agent.retained import count_of
from agent.signals.types import AllocatorSignals
from agent.state import AgentState, Tier
from agent.subject import Subject
from agent.units import human_bytes
from agent.verdicts.base import Finding, View
from agent.verdicts.who import (
    allocators,
    at_most,
    free_of,
    gpu_of,
    member_of,
    process_words,
    settled,
    total_of,
    worse,
)
from engine_hooks.allocator import OOM, AllocatorRow, SegmentsRow

MATTERS_BYTES = 512 * 1024**2  # less than that in pieces can't be what is missing,
MATTERS_RATIO = 0.01  # nor less than this share of the device;
MUCH_RATIO, MUCH_BYTES = 0.03, 2 * 1024**3  # and where no allocation failed for it, less than this is how torch works
RETRIES = 2.0  # in a minute: one may happen to anybody
RECENT_SECONDS = 600.0  # a failed allocation is harm for so long
MOSTLY = 0.9
EXPAND = "Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF in older torch) at the next restart."
NO_TRIM = "empty_cache() would give back none of it: no segment is free as a whole."


class AllocatorFragmentation:
    """Fires at 20 % (note), 30 % (warn), 40 % (page, with harm), and after failures in a row; see the module."""

    kind = "allocator_fragmentation"
    confirm_seconds = 60.0
    clear_seconds = 60.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the processes whose allocator keeps what it can't use, each by its worst device."""
        return allocators(view, _of)


def _of(row: AllocatorSignals, view: View) -> Finding | None:
    limits, textbook = view.policy.allocator, view.policy.profile == "textbook"
    tier, more = _by_ratio(row, limits), _by_slack(row, limits)
    if tier is None and more is None and not view.state.failures:
        return None
    member = member_of(view.state, row.engine, row.role, row.rank, row.process)
    told = member.allocator.row if member is not None and member.allocator is not None else None
    segments = _segments(view.state, told, row.gpu)
    failed = _failed(view.state, row, 0.0 if member is None else member.started_at)
    retries = row.retries_per_minute or 0.0
    harm = retries >= RETRIES or failed > 0
    if not textbook:
        start = not settled(view, row.engine)
        if tier is not None:
            tier = _sober(tier, row, segments, view, failed=failed)
        if start and not harm:
            tier = None
        more = more and _sober_slack(row, view.state, harm=harm, start=start)
    if failed >= limits.failures_in_a_row:
        tier = "page"
    found = tier if more is None else more if tier is None else worse(tier, more)
    if found is None:
        return None
    if not row.engine:
        found = at_most(found, "warn")
    return Finding(
        sentence=_sentence(row, segments, failed),
        remedy=_remedy(row, segments, told),
        evidence=_evidence(row, segments, failed),
        tier=found,
        confirm_seconds=0.0 if failed >= limits.failures_in_a_row else None,
    )


def _by_ratio(row: AllocatorSignals, limits: AllocatorPolicy) -> Tier | None:
    ratio = row.fragmentation
    if ratio is None or not row.free_bytes:
        return None
    if ratio > limits.fragmentation_page_ratio:
        return "page"
    if ratio > limits.fragmentation_alert_ratio:
        return "warn"
    return "note" if ratio > limits.fragmentation_warn_ratio else None


def _by_slack(row: AllocatorSignals, limits: AllocatorPolicy) -> Tier | None:
    if row.overcommit is None or row.overcommit < limits.overcommit_light:
        return None
    return "page" if row.overcommit >= limits.overcommit_heavy else "warn"


def _sober(tier: Tier, row: AllocatorSignals, segments: SegmentsRow | None, view: View, *, failed: int) -> Tier | None:
    """Return the tier of a ratio in the default profile: it must be much, and page only where something fails."""
    retries, state = row.retries_per_minute or 0.0, view.state
    pieces, whole = _pieces(row, segments), _whole(row, segments, state)
    if not _matters(pieces, whole):
        return None
    if failed:
        return tier
    if not _much(pieces, whole):
        return "note"  # that torch has to try again may be for want of room at all
    if retries >= RETRIES:
        return tier if retries > view.policy.allocator.retries else at_most(tier, "warn")
    expandable = segments is not None and segments.expandable_bytes >= MOSTLY * segments.reserved_bytes
    # What others than engines keep beside room enough is their own affair.
    told = not expandable and (bool(row.engine) or _tight(pieces, state, row.gpu))
    return at_most(tier, "warn" if told else "note")


def _sober_slack(row: AllocatorSignals, state: AgentState, *, harm: bool, start: bool) -> Tier | None:
    """Return the tier of overcommit in the default profile: a cache that nobody misses is no fault."""
    if (start and not harm) or not _matters(row.slack_bytes, total_of(state, row.gpu) or 0):
        return None
    if harm:
        return "warn"
    return "note" if _tight(row.slack_bytes, state, row.gpu) else None


def _tight(size: int | None, state: AgentState, gpu: str) -> bool:
    """Whether less is free on the device than these bytes."""
    free = free_of(state, gpu)
    return free is not None and size is not None and free < size


def _pieces(row: AllocatorSignals, segments: SegmentsRow | None) -> int | None:
    """Free bytes that torch can't give back: what lies beside something in use."""
    if segments is None or row.free_bytes is None:
        return row.free_bytes
    return max(0, row.free_bytes - segments.whole_free_bytes)


def _whole(row: AllocatorSignals, segments: SegmentsRow | None, state: AgentState) -> int:
    """The device's memory; what torch has of it where nothing tells that."""
    return total_of(state, row.gpu) or (0 if segments is None else segments.reserved_bytes)


def _matters(size: int | None, whole: int) -> bool:
    return size is not None and size >= max(MATTERS_BYTES, round(MATTERS_RATIO * whole))


def _much(size: int | None, whole: int) -> bool:
    return size is not None and size >= max(MUCH_BYTES, round(MUCH_RATIO * whole))


def _failed(state: AgentState, row: AllocatorSignals, since: float) -> int:
    """Allocations of this process, which began at ``since`` by the wall clock, that failed lately because memory is in
    pieces: those of one before it under the same name went with that one.
    """
    return sum(
        failure.event.count
        for failure in state.failures
        if failure.event.kind == OOM
        and failure.judgement is not None
        and failure.judgement.cause == "fragmented"
        and state.at - failure.event.at < RECENT_SECONDS
        and failure.event.at >= since
        and (failure.engine, failure.process, failure.role, failure.rank)
        == (row.engine, "" if row.engine else row.process, row.role, row.rank)
    )


def _segments(state: AgentState, told: AllocatorRow | None, gpu: str) -> SegmentsRow | None:
    """The last walk over this GPU's segments."""
    if told is None or told.walk is None:
        return None
    if len(told.walk.devices) == 1:
        return told.walk.devices[0]
    here = {row.device for row in told.devices if (found := gpu_of(state, row.uuid)) is not None and found.gpu == gpu}
    return next((segments for segments in told.walk.devices if segments.device in here), None)


def _sentence(row: AllocatorSignals, segments: SegmentsRow | None, failed: int) -> str:
    who = process_words(row.engine, row.role, row.rank, row.process)
    where = f" on GPU {row.gpu}" if row.gpu else ""
    parts = []
    if row.free_bytes and row.fragmentation is not None:
        largest = (
            "" if row.largest_free_bytes is None else f"; the largest piece is {human_bytes(row.largest_free_bytes)}"
        )
        parts.append(
            f"torch in {who}{where} keeps {human_bytes(row.free_bytes)} that nothing uses, {row.fragmentation:.0%} "
            f"fragmented{largest}."
        )
    if row.overcommit is not None and (row.overcommit >= 1.2 or not parts):
        of = "" if row.slack_bytes is None else f", {human_bytes(row.slack_bytes)} more"
        parts.append(
            f"{'It' if parts else f'torch in {who}{where}'} has reserved {row.overcommit:.2f} times what it uses{of}."
        )
    if failed:
        parts.append(f"{count_of(failed, 'allocation')} failed for that in the last 10 min.")
    elif row.retries_per_minute:
        parts.append(f"It had to empty its cache and try again {row.retries_per_minute:.1f} times a minute.")
    text = " ".join(parts)
    return text[:1].upper() + text[1:]


def _remedy(row: AllocatorSignals, segments: SegmentsRow | None, told: AllocatorRow | None) -> str:
    expandable = told is not None and bool(told.expandable_segments)
    if expandable:
        first = (
            "Expandable segments are on already: leave more room (a lower gpu_memory_utilization) or restart when calm."
        )
    else:
        first = EXPAND
    if segments is None:
        return first
    if segments.whole_free_bytes >= MATTERS_BYTES:
        whole = human_bytes(segments.whole_free_bytes)
        return (
            f"{first} Until then torch.cuda.empty_cache() in that process gives back {whole} in segments that are free "
            "as a whole, and no more."
        )
    return first if expandable else f"{first} {NO_TRIM}" if not segments.whole_free_bytes else first


def _evidence(row: AllocatorSignals, segments: SegmentsRow | None, failed: int) -> dict[str, float]:
    known: dict[str, float | None] = {
        "fragmentation_ratio": row.fragmentation,
        "free_bytes": row.free_bytes,
        "largest_free_bytes": row.largest_free_bytes,
        "whole_free_bytes": None if segments is None else segments.whole_free_bytes,
        "overcommit_ratio": row.overcommit,
        "slack_bytes": row.slack_bytes,
        "retries_per_minute": row.retries_per_minute,
        "failed_allocations": failed,
    }
    return {name: value for name, value in known.items() if value is not None}
