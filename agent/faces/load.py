"""What the requests of an engine are at, as lines: waiting, work, speculation, encoder, tiers, groups."""

from __future__ import annotations

from collections.abc import Iterator

from agent.faces.lines import BAD, SHOWN, Line
from agent.retained import count_of, listed
from agent.units import human_seconds
from agent.waiting import PAUSED, STALLED_SECONDS, words
from engine_hooks.detail import (
    AllocationRow,
    Detail,
    EncoderRow,
    SpeculationRow,
    TierRow,
    WaitingRow,
    WorkRow,
)

STALL_SHOWN_SECONDS = 2.0


def lines(detail: Detail) -> Iterator[Line]:
    """Yield what there is to say; nothing of what an engine does not do."""
    if detail.waiting:
        yield from _waiting(detail.waiting, detail.allocation)
    if detail.work:
        yield from _work(detail.work)
    if detail.speculation:
        yield from _speculation(detail.speculation)
    if detail.encoder:
        yield from _encoder(detail.encoder)
    yield from (_tier(row) for row in (detail.tiers or ())[:SHOWN])
    if detail.groups and len(detail.groups) > 1:
        groups = [
            f"{row.group} {row.kind} {'not known' if row.references is None else f'{row.references:,}'}"
            for row in detail.groups[:SHOWN]
        ]
        yield Line("groups", f"references: {', '.join(groups)}", "dim")


def _waiting(row: WaitingRow, allocation: AllocationRow | None) -> Iterator[Line]:
    if row.stalled_by == PAUSED:
        yield Line("paused", "on purpose: no token is scheduled", "yellow")
    elif row.stalled_seconds is not None and row.stalled_seconds >= STALL_SHOWN_SECONDS:
        text = f"no token for {human_seconds(row.stalled_seconds)}, waiting for {words(row.stalled_by)}"
        yield Line("STALLED", text, BAD if row.stalled_seconds >= STALLED_SECONDS else "yellow")
    reasons = sorted(((number, reason) for reason, number in row.reasons.items() if number), reverse=True)
    if not reasons:
        return
    text = listed(f"{number:,} for {words(reason)}" for number, reason in reasons)
    if allocation and allocation.waiting_refused:
        text += f"; {allocation.waiting_refused:,} refused by memory"
        if allocation.oldest_refused_seconds is not None:
            text += f", the first {human_seconds(allocation.oldest_refused_seconds)} ago"
    yield Line("waiting", text)


def _work(row: WorkRow) -> Iterator[Line]:
    preempted, evicted = row.rebuilt_preempted_total, row.rebuilt_evicted_total
    if preempted or evicted:
        rebuilt = (preempted or 0) + (evicted or 0)
        share = f" ({rebuilt / row.prefill_tokens_total:.1%} of prefill)" if row.prefill_tokens_total > 0 else ""
        causes = [f"{number:,} {cause}" for number, cause in ((preempted, "preempted"), (evicted, "evicted")) if number]
        seconds = human_seconds(row.rebuild_seconds_total)
        yield Line("rebuilt", f"{count_of(rebuilt, 'token')}{share}: {listed(causes)}; cost {seconds}")
    if row.steepest_slope:
        text = f"request {row.steepest_request} takes {row.steepest_slope:.1f} blocks/s"
        yield Line("steepest", text, "dim")


def _speculation(row: SpeculationRow) -> Iterator[Line]:
    if row.drafted_tokens_total <= 0 and not row.stuck:
        return
    accepted = row.accepted_tokens_total / max(1, row.drafted_tokens_total)
    text = f"{accepted:.0%} of {count_of(row.drafted_tokens_total, 'token')} accepted"
    if row.interruptions_total:
        text += f"; {row.interruptions_total:,} interrupted, left {count_of(row.residue_blocks_total, 'block')}"
    if row.stuck:
        text += f"; {count_of(row.stuck, 'request')} stuck for more than {human_seconds(row.stuck_after_seconds)}"
    yield Line("drafts", text, BAD if row.stuck else "")


def _encoder(row: EncoderRow) -> Iterator[Line]:
    if not row.entries:
        return
    text = f"{row.held:,} of {row.capacity:,} tokens held"
    if row.orphaned_entries:
        text += f", {count_of(row.orphaned_tokens, 'token')} leaked"
    yield Line("encoder", text, BAD if row.orphaned_entries else "")


def _tier(row: TierRow) -> Line:
    used = "not known" if row.used is None else f"{row.used:,}"
    text = f"{row.tier}: {used}{'' if row.capacity is None else f' of {row.capacity:,}'} blocks in transfer"
    if row.cached is not None:
        text += f", {row.cached:,} cached"
    if row.pending:
        text += f", {count_of(row.pending, 'job')}"
        text += "" if row.oldest_seconds is None else f", oldest {human_seconds(row.oldest_seconds)}"
    if row.stuck:
        text += f", {row.stuck:,} stuck for more than {human_seconds(row.stuck_after_seconds)}"
    return Line("tier", text, BAD if row.stuck else "")
