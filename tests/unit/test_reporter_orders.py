"""Orders for an engine that is long in a step: each is obeyed when it comes to it, or turned away at once."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

from engine_hooks.core.reporter import MAX_ORDERS, EngineReporter
from engine_hooks.core.steps import Steps
from engine_hooks.wire import CHECK, Order


def test_no_order_vanishes_while_the_engine_is_in_a_step() -> None:
    turned: list[int] = []
    reporter = EngineReporter.__new__(EngineReporter)  # the side thread's part alone: there is no engine here
    reporter._orders = deque()
    reporter._wake, reporter._waking = None, False
    reporter._steps = Steps({}, None)
    reporter._steps.due = 1e9
    reporter._link = SimpleNamespace(turn_away=lambda order, _why: turned.append(order.sequence))  # type: ignore[assignment]
    for number in range(MAX_ORDERS + 3):
        reporter._order(Order(sequence=number, kind=CHECK))
    waiting = [order.sequence for order, _came in reporter._orders]
    assert waiting == list(range(MAX_ORDERS))
    assert reporter._steps.due == 0.0, "its next step has more to do than to be counted"
    assert turned == [MAX_ORDERS, MAX_ORDERS + 1, MAX_ORDERS + 2]
