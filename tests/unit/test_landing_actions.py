"""What the agent does is on its page, and what stops it; nothing is shown of one that only looks."""

from __future__ import annotations

from agent.actions.types import ActionsState, BreakerState
from exporters.landing.actions import box
from tests.unit.builders import make_action, make_actions


def test_one_that_only_looks_shows_nothing() -> None:
    assert box(None) == ""
    assert box(ActionsState()) == ""
    assert "switched off by ann" in box(ActionsState(off="switched off by ann"))


def test_actions_say_what_for_and_whether_they_helped() -> None:
    shown = box(make_actions())
    assert "mode enforce, 10 left this hour" in shown
    assert "<td>watermark</td><td>m</td><td>kv_pressure</td><td>in force, helped</td>" in shown


def test_an_open_breaker_is_said_with_its_remedy() -> None:
    shown = box(make_actions(breaker=BreakerState(open=True, reason="3 actions did not help", failures=3)))
    assert "The breaker is open: 3 actions did not help. Close it with: kvtide actions close-breaker" in shown


def test_words_from_outside_are_escaped() -> None:
    shown = box(ActionsState(mode="enforce", recent=(make_action(by="<b>mary</b>", reason="<script>"),)))
    assert "<b>" not in shown
    assert "<script>" not in shown
    assert "&lt;b&gt;mary&lt;/b&gt; (a person)" in shown
