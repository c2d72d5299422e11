"""An engine that is hooked and scraped under the same label is judged by its hooks, which know more than its page."""

from __future__ import annotations

from msgspec.structs import replace

from agent.judge import Judge
from agent.state import AgentState, EngineState, Judgement
from tests.unit.timeline import engine, page, pool, state

FULL = page(engine="m", usage_ratio=0.99, held_blocks=990, running=0, waiting=20)  # holds nearly all, and nothing runs


def at(t: float, hooked: EngineState | None) -> AgentState:
    return state(t, engines=() if hooked is None else (hooked,), pages=(FULL,))


def last(hooked: EngineState | None) -> Judgement:
    judge = Judge()
    return [judge.look(at(float(t), hooked)) for t in range(0, 900, 5)][-1]


def kinds(judgement: Judgement) -> list[str]:
    return [each.kind for each in judgement.verdicts if each.subject.engine == "m" and each.phase == "confirmed"]


def test_the_hooks_are_believed_where_the_page_says_something_else() -> None:
    sound = engine(engine="m", pool=pool(held=400))

    assert kinds(last(sound)) == []
    assert {each.hooked for each in last(sound).signals.engines} == {True, False}


def test_the_page_is_judged_where_the_hooks_say_nothing() -> None:
    silent = replace(engine(engine="m", pool=None), phase="silent", running=None, waiting=None, steps=None)

    assert "kv_stall" in kinds(last(None))
    assert "kv_stall" in kinds(last(silent))


def test_what_the_hooks_see_is_not_hidden_by_a_page_on_which_all_is_well() -> None:
    judge = Judge()
    leaky = engine(engine="m", pool=pool(held=500, orphaned=200))
    seen = [judge.look(state(float(t), engines=(leaky,), pages=(page(engine="m"),))) for t in range(0, 900, 5)]

    assert "kv_orphan" in kinds(seen[-1])
