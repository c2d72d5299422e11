"""Looks that come sooner: at the policy's own idea of a full pool, once, and at a leaked block."""

from __future__ import annotations

import pytest

from agent.actions.trigger import PromptTable
from agent.policy.types import DEFAULT, Policy
from engine_hooks.wire import Report
from tests.unit.builders import make_hello, make_pool_report, make_report


class Bed:
    def __init__(self, ratio: float) -> None:
        self.policy = Policy.model_validate({"use": {"warn_ratio": 0.5, "page_ratio": ratio}})
        self.asked = 0
        self.table = PromptTable(3.0, self.ask, lambda: self.policy)
        self.table.hello(make_hello(instance="i1"), 1, 0.0)

    def ask(self) -> None:
        self.asked += 1

    def report(self, held: int, *, waiting: int = 3, orphaned: int = 0) -> int:
        pool = make_pool_report(capacity=1000, held=held, orphaned=orphaned)
        report: Report = make_report(pool, waiting=waiting)
        self.table.report("i1", report, 1.0)
        return self.asked


@pytest.mark.parametrize(("ratio", "below", "above"), [(0.95, 949, 950), (0.80, 799, 800)])
def test_a_pool_is_full_at_what_pages_by_the_policy(ratio: float, below: int, above: int) -> None:
    bed = Bed(ratio)
    assert bed.report(below) == 0
    assert bed.report(above) == 1
    assert bed.report(above) == 1, "once"
    assert bed.report(below) == 1
    assert bed.report(above, waiting=0) == 1, "nobody waits"
    bed.policy = DEFAULT.model_copy(update={"use": DEFAULT.use.model_copy(update={"page_ratio": below / 1000})})
    assert bed.report(below) == 2, "a policy that is loaded again counts at once"


def test_a_leaked_block_can_t_wait() -> None:
    bed = Bed(0.95)
    assert bed.report(10, waiting=0, orphaned=1) == 1
