"""How ``kvtide compact`` waits: for the end of its own order, for no other's, and never longer than it may."""

from __future__ import annotations

from typing import Any

import pytest

from agent.cli.compacting import End, look, wait
from agent.errors import KvtideError
from agent.state import AgentState
from tests.unit.builders import make_engine, make_state
from tests.unit.details import make_compaction, make_detail

EFFECT = {
    "before_blocks": 1000,
    "after_blocks": 400,
    "offline_blocks": 600,
    "moved_blocks_total": 50,
    "dropped_blocks_total": 7,
    "orders_total": 3,
}
ANSWER: dict[str, Any] = {"phase": "in_force", "outcomes": [{"target": "i1", "code": "done", "effect": EFFECT}]}
ROW: dict[str, Any] = {
    "orders_total": 3,
    "offline": 600,
    "moved_total": 60,
    "moved_idle_total": 9,
    "dropped_total": 8,
    "released_bytes": 600 << 10,
}


def state(phase: Any = "live", instance: str = "i1", **row: Any) -> AgentState:
    detail = make_detail(compaction=make_compaction(**ROW | row))
    return make_state(make_engine(instance=instance, phase=phase, reason="it was killed", detail=detail))


CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "all is done": ({"state": "shrunk"}, "reached", ""),
    "it moves": ({"state": "moving", "offline": 20}, "unfinished", ""),
    "pages go": ({"state": "releasing"}, "unfinished", ""),
    "the engine has not told yet": ({"state": "shrunk", "orders_total": 2}, "unfinished", ""),
    "halfway": ({"state": "stopped", "offline": 20, "reason": "pressure: x"}, "stopped", "pressure: x"),
    "pages go after it has stopped": ({"state": "releasing", "offline": 20, "reason": "x"}, "unfinished", "x"),
    "needed": ({"state": "growing", "offline": 590, "reason": "pressure: y"}, "needed", "pressure: y"),
    "a part came back before a look": ({"state": "shrunk", "offline": 500}, "needed", "blocks came back"),
    "all came back before a look": ({"state": "idle", "offline": 0}, "needed", "blocks came back"),
    "another order": ({"state": "moving", "orders_total": 4}, "overtaken", "undone"),
    "the engine does not speak": ({"state": "moving", "phase": "silent"}, "unfinished", "silent: it was killed"),
    "what it said before is old": ({"state": "shrunk", "phase": "silent"}, "unfinished", "silent"),
    "the engine has ended": ({"state": "moving", "phase": "lost"}, "lost", "it was killed"),
    "another engine by that name": ({"state": "shrunk", "instance": "i2"}, "lost", "gone"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_look_says(case: str) -> None:
    now, wanted, reason = CASES[case]
    end = look(state(**now), "i1", EFFECT)
    assert (end.state, reason in end.reason) == (wanted, True), end


def test_the_numbers_are_those_of_this_order() -> None:
    end = look(state(state="shrunk"), "i1", EFFECT)
    assert (end.moved_blocks, end.dropped_blocks, end.offline_blocks, end.wanted_blocks) == (19, 1, 600, 600)
    assert end.released_bytes == 600 << 10
    assert look(state(state="shrunk", released_bytes=None), "i1", EFFECT).released_bytes is None


def test_a_pool_that_is_let_grow_has_its_end_at_the_new_size() -> None:
    grows = EFFECT | {"before_blocks": 200, "after_blocks": 400}
    assert look(state(state="growing", offline=700), "i1", grows).state == "unfinished"
    assert look(state(state="shrunk", offline=600), "i1", grows).state == "reached"


class Clock:
    """Time passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def waited(*states: AgentState, most: float = 600.0, answer: dict[str, Any] | None = None) -> tuple[End, list[End]]:
    """The end, and what was told on the way; the last state stands."""
    left, seen, clock = list(states), list[End](), Clock()

    def read() -> AgentState:
        return left.pop(0) if len(left) > 1 else left[0]

    return wait(read, answer or ANSWER, most, seen.append, clock=clock, sleep=clock.sleep), seen


def test_it_waits_for_the_end() -> None:
    before = state(state="shrunk", orders_total=2)
    end, seen = waited(before, state(state="moving", offline=20), state(state="releasing"), state(state="shrunk"))
    assert (end.state, end.seconds) == ("reached", 1.5)
    assert [each.offline_blocks for each in seen] == [None, 20, 600]


def test_it_gives_up_and_says_so() -> None:
    end, _ = waited(state(state="moving", offline=20), most=5.0)
    assert (end.state, end.seconds, end.reason, end.offline_blocks) == ("unfinished", 5.0, "it goes on", 20)


def test_without_an_agent_or_with_older_hooks_the_end_is_not_known() -> None:
    def read() -> AgentState:
        raise KvtideError("no agent")

    end = wait(read, ANSWER, 5.0, lambda _: None)
    assert (end.state, end.reason, end.moved_blocks) == ("unknown", "no agent", None)
    old = {"phase": "in_force", "outcomes": [{"target": "i1", "effect": {"offline_blocks": 600}}]}
    assert waited(state(state="shrunk"), answer=old)[0].state == "unknown"
