"""An allocation that failed, by what a snapshot knows of that moment; judged as any other (:mod:`agent.oom.judge`).

What was reserved and allocated then is the snapshot's own state, less what the trace says happened since. A trace
counts requested sizes, so rounding is the error (512 bytes an allocation).
"""

from __future__ import annotations

from agent.oom.facts import OomFacts
from agent.oom.judge import judge_facts
from agent.snapshot.model import OomEvent
from agent.snapshot.report import Oom, Usage

_LAST = 50  # entries after it: the layout is still that of the failure


def judge(event: OomEvent, common: Usage, whole: Usage, site: str) -> Oom:
    """Return why ``event`` failed.

    ``common``: the pool that serves ordinary allocations, ``whole``: the device, both when the snapshot was taken.
    """
    reserved = max(0, whole.reserved - event.reserved_after)
    in_use = max(0, whole.allocated + whole.awaiting - event.allocated_after)
    private = whole.inactive - common.inactive
    inactive = max(0, reserved - in_use - private)
    fresh = event.entries_before_end <= _LAST
    judged = judge_facts(
        None,
        OomFacts(
            requested=event.size,
            free=event.device_free,
            allocated=in_use,
            reserved=reserved,
            unallocated=inactive + private,
            shared_free=inactive,
            largest_free=common.largest_free if fresh else None,
            expandable=None,
        ),
    )
    unsaid = " Who else holds the device, a snapshot doesn't say." if judged.cause == "out" else ""
    return Oom(
        size=event.size,
        device_free=event.device_free,
        reserved=reserved,
        inactive=inactive,
        cause=judged.cause,
        sentence=f"{judged.sentence}{unsaid} {judged.remedy}",
        site=site,
    )
