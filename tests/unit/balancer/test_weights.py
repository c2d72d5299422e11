"""One engine's weight over time, second by second."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.balancer.evidence import Evidence, Level
from agent.balancer.weights import Look, Pace, Track, advance, fresh

PACE = Pace()


class Told(NamedTuple):
    seconds: float
    percent: int
    step: str


class Engine:
    """Follows one track; ``said`` has each change."""

    def __init__(self, track: Track | None = None) -> None:
        self.now = 0.0
        self.track = track or fresh(0.0, 0.0)
        self.said: list[Told] = []

    def __call__(self, level: Level, seconds: int, *, granted: bool = True, refusal: str = "") -> int:
        for _ in range(seconds):
            self.now += 1.0
            evidence = Evidence(level=level, why=f"it is {level}")
            before = self.track.weight
            look = Look(evidence=evidence, granted=granted, refusal=refusal, now=self.now, at=self.now)
            self.track = advance(self.track, look, PACE)
            weight = self.track.weight
            if (weight.percent, weight.step) != (before.percent, before.step):
                self.said.append(Told(self.now, weight.percent, weight.step))
        return self.track.weight.percent


def test_two_looks_that_agree_halve_and_one_alone_does_not() -> None:
    engine = Engine()
    for _ in range(20):
        assert engine("halve", 1) == 100
        assert engine("calm", 3) == 100
    assert engine("halve", 2) == 50
    assert engine.track.weight.why == "it is halve"
    assert not engine.track.wants


def test_isolated_for_five_minutes_then_restored_in_steps() -> None:
    engine = Engine()
    engine("isolate", 2)
    engine("calm", 1000)
    assert engine.said == [
        (2.0, 0, "isolated"),
        (302.0, 10, "restoring"),
        (362.0, 25, "restoring"),
        (422.0, 50, "restoring"),
        (482.0, 75, "restoring"),
        (542.0, 100, "full"),
    ]


def test_each_step_waits_for_a_minute_of_calm() -> None:
    engine = Engine()
    engine("isolate", 2)
    assert engine("calm", 300) == 10
    for _ in range(10):
        assert engine("calm", 59) == 10
        assert engine("uneasy", 1) == 10
    assert engine("calm", 61) == 25
    assert engine("halve", 500) == 25, "a breach gives nothing back; what is below 50 % is not raised by it"


def test_it_stays_isolated_while_it_is_not_calm() -> None:
    engine = Engine()
    engine("isolate", 1000)
    assert engine("uneasy", 500) == 0
    assert engine("calm", 2) == 10


def test_a_breach_on_the_way_up_halves_or_isolates_again() -> None:
    engine = Engine()
    engine("halve", 2)
    assert engine("calm", 61) == 75
    assert engine("halve", 2) == 50
    assert engine("calm", 61) == 75
    assert engine("isolate", 2) == 0


def test_no_grant_halves_and_says_why() -> None:
    engine = Engine()
    assert engine("isolate", 2, granted=False) == 50
    assert engine.track.wants
    assert engine.track.weight.why == "it is isolate; not isolated: the coordinator is being asked"
    assert engine("isolate", 300, granted=False, refusal="3 of 10") == 50
    assert engine.track.weight.why == "it is isolate; not isolated: 3 of 10"
    assert engine("isolate", 1) == 0


@pytest.mark.parametrize("calm", [0, 310])
def test_a_grant_that_ends_brings_half_back(calm: int) -> None:
    engine = Engine()
    engine("isolate", 2)
    engine("calm", calm)
    level: Level = "calm" if calm else "isolate"
    assert engine.track.wants
    assert engine(level, 1, granted=False, refusal="it can't be asked") == 50
    assert engine.track.weight.why == f"no longer granted: it can't be asked; it is {level}"


def test_half_and_more_needs_no_grant() -> None:
    engine = Engine()
    engine("isolate", 2)
    engine("calm", 421)
    assert (engine.track.weight.percent, engine.track.wants) == (50, False)
    assert engine("calm", 200, granted=False) == 100


@pytest.mark.parametrize(("level", "percent"), [("halve", 50), ("isolate", 0)])
def test_without_data_a_weight_holds_two_minutes_and_is_full_then(level: Level, percent: int) -> None:
    engine = Engine()
    engine(level, 2)
    assert engine("unknown", 120) == percent
    assert engine("unknown", 1) == 100
    assert engine.track.weight.why == "it is unknown for 2 min: all its share again"
    assert not engine.track.wants


def test_data_that_comes_back_in_time_goes_on_where_it_was() -> None:
    engine = Engine()
    engine("isolate", 2)
    for _ in range(10):
        engine("unknown", 100)
        assert engine("isolate", 1) == 0


def test_without_data_nothing_is_taken() -> None:
    assert Engine()("unknown", 1000) == 100


def test_grace_after_a_restore_and_not_after_it() -> None:
    engine = Engine()
    engine("halve", 2)
    engine("calm", 121)
    assert engine.track.weight.step == "full"
    restored = engine.now
    assert engine("isolate", 119) == 100
    assert engine("isolate", 4) == 0
    assert engine.said[-1].seconds == restored + 121


def test_flapping_evidence_moves_it_seldom() -> None:
    engine = Engine()
    for _ in range(600):  # an hour
        engine("halve", 3)
        engine("calm", 3)
    assert engine.said == [(2.0, 50, "halved")]


LEVELS = st.sampled_from(["unknown", "calm", "uneasy", "halve", "isolate"])


@settings(max_examples=60)
@given(st.lists(st.tuples(LEVELS, st.integers(1, 200), st.booleans()), max_size=30))
def test_what_always_holds(events: list[tuple[Level, int, bool]]) -> None:
    engine = Engine()
    for level, seconds, granted in events:
        for _ in range(seconds):
            before = engine.track.weight
            percent = engine(level, 1, granted=granted)
            weight = engine.track.weight
            assert percent in {0, 10, 25, 50, 75, 100}
            assert granted or percent >= 50 or level == "unknown", "below 50 % only by a grant"
            assert engine.track.wants or percent >= 50
            assert (weight.mode == "drain") == (percent == 0)
            if percent > before.percent:
                assert level in ("calm", "unknown") or not granted, "given back only while calm"
            if percent < before.percent:
                assert level in ("halve", "isolate"), "taken only on evidence"
                assert percent >= 50 or level == "isolate"
    engine("calm", 1000)
    assert engine.track.weight.step == "full", "calm always ends in all its share"
