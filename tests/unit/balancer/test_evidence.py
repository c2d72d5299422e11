"""What an engine's signals ask for, and what they do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.balancer.evidence import evidence_of
from agent.policy.types import DEFAULT, GrowthPolicy
from agent.state import Verdict
from agent.subject import Subject
from tests.unit.balancer.made import forecast, rate, signals

POLICY = DEFAULT.growth
SHORT = {"use_ratio": 0.75, "exhaustion": forecast(240.0), "growth": rate(0.06)}


@pytest.mark.parametrize(
    ("level", "found"),
    [
        ("calm", {"unexplained": 0.0}),
        ("calm", {"unexplained": 0.039}),
        ("uneasy", {"unexplained": 0.045}),
        ("halve", {"unexplained": 0.051}),
        ("halve", {"unexplained": 0.09, "lasts": 179.0}),
        ("isolate", {"unexplained": 0.09, "lasts": 180.0}),
        # Above for long, but not now.
        ("halve", {"unexplained": 0.07, "lasts": 400.0}),
        # A forecast: short, of much that is held, and mostly of what nobody explains.
        ("isolate", {"unexplained": 0.04, **SHORT}),
        ("isolate", {"unexplained": 0.04, **SHORT, "growth": None}),
        ("calm", {"unexplained": 0.02, **SHORT}),
        ("calm", {"unexplained": 0.035, **SHORT, "use_ratio": 0.70}),
        ("calm", {"unexplained": 0.035, **SHORT, "exhaustion": forecast(300.0)}),
        # A ramp-up: all of it is explained.
        (
            "calm",
            {"growth": rate(0.4), "use_ratio": 0.9, "exhaustion": forecast(15.0), "growth_above_page_seconds": 600.0},
        ),
        ("calm", {"unexplained": 0.3, "lasts": 900.0, "settled": False}),
        ("unknown", {"unexplained": None}),
        # What is inferred from a page is never enough to isolate.
        ("halve", {"unexplained": 0.09, "lasts": 400.0, "hooked": False}),
        ("halve", {"unexplained": 0.04, **SHORT, "hooked": False}),
    ],
)
def test_the_level(level: str, found: dict[str, Any]) -> None:
    assert evidence_of(signals(**found), (), POLICY).level == level


def test_growth_that_is_not_sure_is_calm() -> None:
    unsure = replace(rate(0.09), low=0.0)
    found = signals(lasts=500.0, use_ratio=0.9, exhaustion=forecast(60.0))
    assert evidence_of(replace(found, unexplained=unsure), (), POLICY).level == "calm"


def test_thresholds_are_the_policys() -> None:
    strict = GrowthPolicy(warn_per_minute=0.01, page_per_minute=0.02, page_seconds=10.0)
    assert evidence_of(signals(0.015), (), strict).level == "halve"
    assert evidence_of(signals(0.025, lasts=10.0), (), strict).level == "isolate"


def test_old_numbers_are_no_evidence_and_less_than_that_is_no_reason() -> None:
    found = Verdict(
        kind="sensor_stale",
        phase="confirmed",
        since=0.0,
        changed=0.0,
        sentence="",
        remedy="",
        evidence={},
        subject=Subject(scope="engine", engine="m"),
        tier="warn",
    )
    leak = signals(0.2, lasts=500.0)
    assert evidence_of(leak, (found,), POLICY).level == "unknown"
    suspect = replace(found, phase="suspect")
    assert evidence_of(leak, (suspect,), POLICY).level == "isolate"
    note = replace(found, tier="note")
    assert evidence_of(leak, (note,), POLICY).level == "isolate", "one of several hooks is off"
    assert evidence_of(None, (), POLICY).level == "unknown"


def test_what_people_read() -> None:
    assert evidence_of(signals(0.09, lasts=185.0), (), POLICY).why == (
        "unexplained growth is 9.0% of the pool a minute, more than 8.0% for 3 min"
    )
    assert evidence_of(signals(0.04, **SHORT), (), POLICY).why == (
        "unexplained growth is 4.0% of the pool a minute, and with 75% held its pool is full in 4 min"
    )


@given(
    growth=st.floats(0.0, 5.0),
    use=st.floats(0.0, 1.0),
    ends=st.floats(0.0, 1800.0),
    above=st.floats(0.0, 1e6),
    unexplained=st.floats(0.0, 0.001),
)
def test_raw_growth_alone_never_takes_anything_away(
    growth: float, use: float, ends: float, above: float, unexplained: float
) -> None:
    found = signals(
        unexplained,
        growth=rate(max(growth, 0.0021)),
        use_ratio=use,
        exhaustion=forecast(ends),
        growth_above_page_seconds=above,
        doubling_seconds=1.0,
        acceleration=9.0,
    )
    assert evidence_of(found, (), POLICY).level == "calm"
