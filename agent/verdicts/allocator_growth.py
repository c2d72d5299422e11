"""allocator_growth: tensors of one process take ever more of the device, over hours, and what came stays.

Loading, warm-up and graph capture are over long before the slow estimate says anything; a plateau ends it, since both
of its windows must rise.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.signals.types import AllocatorSignals
from agent.state import Tier
from agent.subject import Subject
from agent.units import human_bytes, human_seconds
from agent.verdicts.base import Finding, View
from agent.verdicts.leaking import amount, ends_in, leaks, shape
from agent.verdicts.who import allocators, at_most, free_of, process_words, settled, total_of

REMEDY = (
    "Find what keeps the tensors: `kvtide snapshot` on two memory snapshots of this process, an hour apart, names the "
    "lines of code. empty_cache() frees none of it: it is in use. A restart of the process in a calm hour does."
)


class AllocatorGrowth:
    """Fires on the slow estimate alone; pages where the device will be full in less than the policy's time."""

    kind = "allocator_growth"
    confirm_seconds = 120.0
    clear_seconds = 600.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the processes whose tensors leak."""
        return allocators(view, _of)


def _of(row: AllocatorSignals, view: View) -> Finding | None:
    slow, total = row.slow, total_of(view.state, row.gpu)
    if slow is None or not leaks(slow) or not settled(view, row.engine):
        return None
    free = free_of(view.state, row.gpu)
    left = ends_in(slow, total, free)
    tier: Tier = "page" if left is not None and left < view.policy.host.limit_seconds else "warn"
    who = process_words(row.engine, row.role, row.rank, row.process)
    where = f" on GPU {row.gpu}" if row.gpu else ""
    evidence = {"ratio_per_hour": slow.per_hour, "seconds": slow.seconds, "retained_ratio": slow.retained_ratio}
    text = f"Tensors of {who}{where} grow by {amount(slow, total)}, for {human_seconds(slow.seconds)} now{shape(slow)}."
    if slow.staircase:
        evidence["steps"] = slow.staircase
    if left is not None and free is not None:
        evidence |= {"left_seconds": left, "free_bytes": free}
        text += f" {human_bytes(free)} of the device are free: enough for {human_seconds(left)} at this rate."
    return Finding(text, REMEDY, evidence, tier=tier if row.engine else at_most(tier, "warn"))
