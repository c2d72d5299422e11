"""Judges an allocation that failed by what the snapshot knows of that moment.

What was reserved and allocated then is the snapshot's own state, less what the trace says happened since. A trace
counts requested sizes, so rounding is the error (512 bytes an allocation).
"""

from __future__ import annotations

from agent.snapshot.model import OomEvent
from agent.snapshot.report import Oom, Usage
from agent.units import human_bytes

OUT, FRAGMENTED, UNUSABLE = "out", "fragmented", "unusable"
_LAST = 50  # entries after it: the layout is still that of the failure


def judge(event: OomEvent, common: Usage, whole: Usage, site: str) -> Oom:
    """Return why ``event`` failed.

    ``common``: the pool that serves ordinary allocations, ``whole``: the device, both when the snapshot was taken.
    """
    reserved = max(0, whole.reserved - event.reserved_after)
    in_use = whole.allocated + whole.awaiting - event.allocated_after
    private = whole.inactive - common.inactive
    inactive = max(0, reserved - max(0, in_use) - private)
    fresh = event.entries_before_end <= _LAST
    cause, sentence = _why(event, common, inactive, private, fresh)
    return Oom(
        size=event.size,
        device_free=event.device_free,
        reserved=reserved,
        inactive=inactive,
        cause=cause,
        sentence=sentence,
        site=site,
    )


def _why(event: OomEvent, common: Usage, inactive: int, private: int, fresh: bool) -> tuple[str, str]:
    wanted = (
        f"{human_bytes(event.size)} wanted, {human_bytes(event.device_free)} free on the device, "
        f"{human_bytes(inactive)} reserved and unused"
    )
    if event.device_free + inactive < event.size:
        text = f"{wanted}: truly out. Together that is too little"
        if event.device_free + inactive + private >= event.size:
            return (
                UNUSABLE,
                f"{text}; {human_bytes(private)} lie free in private pools (CUDA graphs), which it can't use.",
            )
        return OUT, f"{text}; who else holds the card, a snapshot doesn't say."
    if event.device_free >= event.size:
        return UNUSABLE, (
            f"{wanted}: the device had enough. A memory limit (set_per_process_memory_fraction) or rounding up to "
            "whole segments stood in the way."
        )
    if fresh and common.largest_free >= event.size:
        return UNUSABLE, (
            f"{wanted}: a free block of {human_bytes(common.largest_free)} is there, but it can't be used: it belongs "
            "to another stream, or max_split_size forbids to split it."
        )
    largest = f"; the largest free block is {human_bytes(common.largest_free)}" if fresh else ""
    return FRAGMENTED, f"{wanted}: fragmented. Together it would be enough, but in no one piece{largest}."
