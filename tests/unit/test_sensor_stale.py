"""Sources and engines of which nothing new is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.state import AgentState, Verdict
from tests.unit.builders import make_hooks, make_worker
from tests.unit.node_builders import make_source
from tests.unit.timeline import UNIX, engine, page, state, times, watch
from tests.unit.told import Told, told_tiers

KIND = "sensor_stale"


def verdict(seconds: float = 100, **parts: Any) -> Verdict | None:
    return Told(KIND).last(state(t, **parts) for t in times(seconds))


def test_a_source_that_fails_is_told_with_what_is_not_known_meanwhile() -> None:
    down = make_source(up=False, reason="NVML: Driver Not Loaded", failures=9)
    found = verdict(sources=(down,))
    assert found is not None
    assert (found.phase, found.tier, found.subject.source) == ("confirmed", "warn", "device")
    assert found.sentence == (
        "The agent's source device can't be read: NVML: Driver Not Loaded. Not known meanwhile: use, growth and loss "
        "of GPUs, other processes' memory."
    )


@pytest.mark.parametrize("why", ["absent", "not read yet", "up"])
def test_a_source_that_has_nothing_to_read_or_has_not_begun_is_none(why: str) -> None:
    changes = {
        "absent": {"up": False, "absent": True, "reason": "no NVIDIA driver"},
        "not read yet": {"up": False, "reads": 0, "failures": 0, "reason": "not read yet"},  # the agent's own restart
        "up": {},
    }[why]
    assert verdict(sources=(make_source(**changes),)) is None


def test_frozen_gauges_are_told_and_nothing_is_to_be_evicted_on_them() -> None:
    why = "nothing on its page has changed for 40 s, with 106 requests said to run"
    found = verdict(pages=[page(phase="stale", reason=why, usage_ratio=None, running=None)])
    assert found is not None
    assert (found.phase, found.tier, found.subject.engine) == ("confirmed", "warn", "s")
    assert found.sentence == "Nothing on its page has changed for 40 s, with 106 requests said to run."
    assert "one short request" in found.remedy
    assert "Evict and preempt nothing" in found.remedy


def test_a_page_that_is_none_is_told() -> None:
    found = verdict(pages=[page(phase="bad_page", reason="the page is empty", usage_ratio=None)])
    assert found is not None
    assert "the page is empty" in found.sentence


def test_silent_hooks_are_told_and_those_of_an_engine_that_starts_are_not() -> None:
    silent = {"phase": "silent", "reason": "no word for 90 s", "report_age_seconds": 90.0, "pool": None}
    found = verdict(engines=(engine(**silent),))
    starting = verdict(engines=(engine(**silent, started_at=UNIX - 400),))
    assert found is not None
    assert starting is None
    assert found.tier == "note", "engine_missing tells people"
    assert found.sentence == (
        "The hooks in engine m have said nothing for 90 s: no word for 90 s. What its pool holds is not known."
    )


def test_a_hook_that_is_switched_off_is_only_noted() -> None:
    found = verdict(engines=(engine(hooks=make_hooks()),))
    assert found is not None
    assert found.tier == "note"
    assert "1 hook in engine m is switched off after errors (step: ValueError: boom)" in found.sentence
    assert verdict(engines=(engine(hooks=make_hooks(off={})),)) is None


def test_a_hook_that_is_off_in_a_worker_is_noted_too() -> None:
    worker = make_worker(hooks_off={"memory": "ValueError: boom"})
    found = verdict(engines=(engine(hooks=make_hooks(off={}), members=(worker,)),))
    assert found is not None
    assert "1 hook in engine m is switched off after errors (worker/1 memory: ValueError: boom)" in found.sentence


def test_a_sensor_that_restarts_tells_nobody() -> None:
    told = Told(KIND)
    for t in times(3600, 5):
        down = t % 1200 < 40
        source = make_source(up=not down, reason="NVML is being loaded" if down else "")
        assert told_tiers(told.look(state(t, sources=(source,)))) == []


def test_its_life() -> None:
    def seen() -> Iterator[AgentState]:
        for t in times(300):
            stale = 10 <= t < 100
            yield state(t, pages=[page(phase="stale" if stale else "up", reason="it stands still" if stale else "")])

    assert Told(KIND).phases(seen()) == ["none", "suspect", "confirmed", "resolved", "none"]
    told = Told(KIND)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert (phases[69], phases[70], phases[108], phases[109]) == (
        ["suspect"],
        ["confirmed"],
        ["confirmed"],
        ["resolved"],
    )


def test_an_engine_that_is_gone_is_no_stale_sensor_any_more() -> None:
    told = Told(KIND)
    silent = engine(phase="silent", reason="no word", pool=None)
    for t in times(100):
        told.look(state(t, engines=(silent,)))
    found = told.look(state(101, engines=()))
    assert [(each.phase, each.ending) for each in found] == [("resolved", "engine gone")]


def test_a_silent_engine_is_told_once_by_what_somebody_can_act_on() -> None:
    silent = engine(phase="silent", reason="no word", report_age_seconds=500.0, running=None, pool=None)
    frozen = page(engine="m", phase="stale", reason="it stands still", usage_ratio=None)
    seen = watch(state(t, engines=(silent,), pages=[frozen]) for t in times(200))
    assert seen.kinds() == {"engine_missing"}
    other = watch(state(t, engines=(engine(),), pages=[frozen]) for t in times(200))
    assert other.kinds() == {"sensor_stale"}, "an engine that speaks may have a page that does not"
