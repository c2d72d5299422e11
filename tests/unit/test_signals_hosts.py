"""Host memory that goes up and down with requests is no leak; what comes beside that is."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from agent.signals.hosts import HostsTracker
from agent.state import AgentState
from tests.unit.builders import make_engine, make_state
from tests.unit.node_builders import make_host, make_process

MIB = 2**20
HOUR = 3600.0
Shape = Callable[[float], float]


def day(t: float) -> float:
    """Requests that run: few at night, when it begins."""
    return 40 - 30 * math.cos(2 * math.pi * t / (24 * HOUR))


def steady(t: float) -> float:
    return 40.0 + 5 * math.sin(t / 97.0)


def seen(hours: float, running: Shape | None, size: Shape) -> list[float]:
    """Return the hours at which memory of ``size`` MiB is said to leak, sampled each minute."""
    tracker, found = HostsTracker(), []
    for n in range(int(60 * hours)):
        t = 60.0 * n
        row = make_process(resident_bytes=int(size(t) * MIB))
        engines = () if running is None else (make_engine(engine="m", running=round(running(t))),)
        state: AgentState = make_state(
            *engines, monotonic=1000.0 + t, scrape=None, host=make_host(processes=(row,), cgroups=())
        )
        (signals,) = tracker.take(1000.0 + t, state)
        if signals.slow is not None and signals.slow.leaks:
            found.append(t / HOUR)
    return found


def follows(t: float) -> float:
    """A quarter more by day, a third of an hour behind the requests."""
    return 4000 + 14 * day(max(0.0, t - 1200.0)) + 4 * math.sin(t / 131.0)


def test_what_follows_the_requests_of_a_day_is_no_leak() -> None:
    assert not seen(11, day, follows)
    assert seen(11, None, follows), "where nobody tells of requests it looks like one"


@pytest.mark.parametrize("running", [steady, None])
def test_what_grows_beside_the_requests_is_a_leak(running: Shape | None) -> None:
    assert seen(6, running, lambda t: 4000 + 150 * t / HOUR + 4 * math.sin(t / 131.0))


def test_a_staircase_of_host_memory_is_seen_before_two_hours_are_over() -> None:
    tracker, steps = HostsTracker(), []
    for n in range(2 * 110):
        t = 30.0 * n
        row = make_process(resident_bytes=int((4000 + 200 * (t // 700) + 3 * math.sin(t / 131.0)) * MIB))
        state = make_state(
            make_engine(engine="m", running=round(steady(t))),
            monotonic=1000.0 + t,
            scrape=None,
            host=make_host(processes=(row,), cgroups=()),
        )
        (signals,) = tracker.take(1000.0 + t, state)
        if signals.slow is not None:
            steps.append(signals.slow.staircase)
    assert max(steps) >= 4
