"""A judgement beside the state that it is about: an engine has its own verdicts, and no predecessor's."""

from __future__ import annotations

import pytest

from agent.judged import judged
from agent.signals.types import NodeSignals
from agent.state import Judgement
from agent.subject import Subject
from agent.verdicts.endings import ENGINE_GONE, OUT_OF_SIGHT
from tests.unit.builders import make_engine, make_state, make_verdict
from tests.unit.told import engine_signals

M = Subject(scope="engine", engine="m")


def own(judgement: Judgement, instance: str = "i") -> list[str]:
    (engine,) = judged(make_state(make_engine(engine="m", instance=instance, verdicts=())), judgement).engines
    return [each.kind for each in engine.verdicts]


def of(instance: str | None, **changes: object) -> Judgement:
    engines = () if instance is None else (engine_signals(instance=instance),)
    return Judgement(at=1.0, signals=NodeSignals(engines=engines), verdicts=(make_verdict(subject=M, **changes),))


def test_a_successor_does_not_wear_what_its_predecessor_was_told_of() -> None:
    assert own(of("i")) == ["kv_orphan"]
    assert own(of("i"), instance="j") == []


def test_an_engine_whose_signals_have_failed_keeps_its_verdicts() -> None:
    assert own(of(None)) == ["kv_orphan"]


@pytest.mark.parametrize(("ending", "shown"), [("no longer so", True), (ENGINE_GONE, False), (OUT_OF_SIGHT, False)])
def test_a_verdict_whose_fault_has_gone_is_shown_as_resolved(ending: str, shown: bool) -> None:
    assert bool(own(of("i", phase="resolved", ending=ending))) == shown
