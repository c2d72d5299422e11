"""What an agent knows of the minutes before is drawn at once; one that does not tell costs nothing."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from agent.cli.client import AgentClient
from agent.errors import KvtideError
from agent.state import AgentState
from agent.tide import STEP_SECONDS, Tides
from agent.tide import Moment as Tide
from agent.top.asked import AgentSource
from agent.top.history import MOST_MOMENTS, History, Moment, Point, Who
from agent.top.past import Past, history_of
from tests.unit.support import eventually
from tests.unit.top import nodes
from tests.unit.top.test_live import Answering

M = Who("m", hooked=True)


def told(state: AgentState, seconds: int) -> dict[str, tuple[Tide, ...]]:
    """The agent's own history after ``seconds`` of a pool that filled from nothing, until now."""
    tides = Tides()
    for each in nodes.rising(state, seconds):
        assert each.judgement is not None
        tides.take(each, each.judgement)
    return tides.all()


def test_the_minutes_before_are_there_with_the_first_state() -> None:
    state = nodes.small()
    history = history_of(told(state, 600), state)
    history.take(Moment(state.monotonic, {M: Point(0.3, None, None)}))
    points = history.of(M)
    assert len(points) == pytest.approx(600 / STEP_SECONDS, abs=2)
    held = [point.held for point in points if point is not None and point.held is not None]
    assert held == sorted(held)
    assert held[0] < 0.01
    assert held[-1] == 0.3
    assert history.seconds(len(points)) == pytest.approx(600, abs=2 * STEP_SECONDS)
    assert {point.growth for point in points[:-1] if point} == {0.03}
    assert {point.acceleration for point in points[:-1] if point} == {0.0036}


def test_what_follows_is_one_point_a_step_and_the_most_of_it() -> None:
    history = History(step=STEP_SECONDS)
    for second, held in ((100.0, 0.1), (101.0, 0.4), (102.0, 0.2), (105.0, 0.1)):
        history.take(Moment(second, {M: Point(held, None, None)}))
    assert [point and point.held for point in history.of(M)] == [0.4, 0.1]
    history.take(Moment(121.0, {M: Point(0.5, None, None)}))  # nobody looked for fifteen seconds
    assert [point and point.held for point in history.of(M)] == [0.4, 0.1, None, None, 0.5]
    assert history.seconds(5) == 19.0
    assert history.seconds(2) == STEP_SECONDS
    history.take(Moment(90_000.0, {M: Point(0.5, None, None)}))
    assert len(history.of(M)) == MOST_MOMENTS


def test_what_is_later_than_the_state_is_of_another_clock() -> None:
    state = nodes.small()
    moment = Tide(state.at + 60, 0.9, None, None, None, None, None)
    assert history_of({"m": [moment]}, state).of(M) == []
    assert history_of({"m": [moment._replace(at=state.at - 60)]}, state).of(M) == [Point(0.9, None, None)]
    hookless = history_of({"elsewhere": [moment._replace(at=state.at - 60)]}, state)
    assert hookless.of(Who("elsewhere", hooked=False)) == [Point(0.9, None, None)]


def test_the_program_asks_once_and_again_after_a_hole() -> None:
    asked, dead = [], threading.Event()
    state = nodes.small()

    def fetch() -> AgentState:
        if dead.is_set():
            raise KvtideError("gone")
        return state

    def past() -> dict[str, tuple[Tide, ...]]:
        asked.append(1)
        return told(state, 300)

    source = AgentSource(nodes.SOURCE, lambda: fetch, past)
    source._live._every = 0.01
    source.start(lambda: None)
    try:
        eventually(lambda: len(source.seen().history.of(M)) > 50)
        assert len(asked) == 1
        dead.set()
        eventually(lambda: source.seen().problem)
        state = replace(state, monotonic=state.monotonic + 60, at=state.at + 60)
        dead.clear()
        eventually(lambda: source.seen() and len(asked) == 2)
    finally:
        source.stop()


def test_held_is_held() -> None:
    states = iter(replace(nodes.small(), monotonic=1000.0 + second) for second in range(10**6))
    source = AgentSource(nodes.SOURCE, lambda: lambda: next(states))
    source._live._every = 0.01
    source.start(lambda: None)
    try:
        eventually(lambda: len(source.seen().history.of(M)) > 3)
        source.pause()
        held = source.seen().history.of(M)
        before = source._live.state()
        eventually(lambda: source._live.state() is not before)
        assert source.seen().history.of(M) == held
        source.pause()
        eventually(lambda: len(source.seen().history.of(M)) > len(held))
    finally:
        source.stop()


def test_one_that_does_not_tell_is_no_trouble() -> None:
    def refuse() -> dict[str, tuple[Tide, ...]]:
        raise KvtideError("answered 404")

    past = Past(refuse)
    past.ask()
    eventually(lambda: past._thread is not None and not past._thread.is_alive())
    assert past.take() is None


@pytest.mark.parametrize("body", [b"{}", b'{"m": [{"at": 5.0, "held": 0.5, "new": 1}]}', b'{"m": []}'])
def test_tides_of_any_version(body: bytes) -> None:
    server = Answering(body)
    try:
        found = AgentClient(server.url).tides()
    finally:
        server.close()
    assert all(row == Tide(5.0, 0.5, None, None, None, None, None) for rows in found.values() for row in rows)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"m": [{"held": 0.5}]}', b'{"m": [{"at": null}]}', b'{"m": [["x"]]}'])
def test_what_is_no_tide_is_refused(body: bytes) -> None:
    server = Answering(body)
    try:
        with pytest.raises(KvtideError, match="not kvtide's tides"):
            AgentClient(server.url).tides()
    finally:
        server.close()
