"""The last half an hour of a pool: bounded, peaks kept, holes as holes; and its drawing."""

from __future__ import annotations

import gc
import re
import tracemalloc

from msgspec.structs import replace
from starlette.testclient import TestClient

from agent.state import AgentState, Judgement
from agent.tide import MOST_ENGINES, POINTS, SPAN_SECONDS, STEP_SECONDS, Moment, Tides
from exporters.http import build_app
from exporters.landing.tide import picture
from tests.unit.builders import make_engine, make_pool, make_state
from tests.unit.judgements import make_engine_signals, make_judgement
from tests.unit.recordings import AT, moment, sound_engine


def judged(*names: str, use: float | None = 0.3) -> Judgement:
    judgement = make_judgement()
    engines = tuple(make_engine_signals(engine=name, use_ratio=use) for name in names)
    return replace(judgement, signals=replace(judgement.signals, engines=engines))


def at(second: float, held: int = 300, **changes: object) -> AgentState:
    return moment(second, sound_engine(pool=make_pool(held=held, orphaned=4), **changes))


def test_a_step_keeps_its_peak_and_half_an_hour_is_kept() -> None:
    tides = Tides()
    for second in range(int(2 * SPAN_SECONDS)):
        tides.take(at(second, 900 if second == 3001 else 300), judged("m"))
    moments = tides.of("m")
    assert len(moments) == POINTS
    assert max(each.held or 0.0 for each in moments) == 0.9
    assert moments[-1].at - moments[0].at <= SPAN_SECONDS
    assert {each.orphaned for each in moments} == {0.004}


def test_what_is_not_known_is_not_a_zero_and_what_is_known_comes_back_as_it_was() -> None:
    tides, judgement = Tides(), judged("m", use=None)
    for step in range(2 * POINTS):
        second = STEP_SECONDS * step
        tides.take(moment(second, sound_engine(pool=None)) if step % 2 else at(second, step), judgement)
    found = tides.of("m")
    assert len(found) == POINTS
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert {each.held is None for each in found} == {each.orphaned is None for each in found} == {True, False}
    assert {type(each.waiting) for each in found} <= {int, type(None)}
    assert {each.acceleration for each in found} == {make_engine_signals().acceleration}


def test_an_engine_takes_no_more_room_after_half_an_hour_than_after_a_minute() -> None:
    tides, judgement = Tides(), judged("m")
    states = [at(STEP_SECONDS * step, step) for step in range(2 * POINTS)]
    tides.take(states[0], judgement)
    tracemalloc.start()
    try:
        for state in states[1:]:
            tides.take(state, judgement)
        gc.collect()
        grown = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/agent/tide.py")])
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in grown.statistics("filename")) < 4096


def test_an_engine_without_hooks_has_its_use_and_nothing_else() -> None:
    tides = Tides()
    tides.take(moment(0.0, sound_engine(engine="other", pool=None)), judged("page", use=0.5))
    (only,) = tides.of("page")
    assert (only.held, only.orphaned, only.cached_idle) == (0.5, None, None)


def test_engines_that_are_gone_go_and_no_more_are_kept_than_said() -> None:
    tides = Tides()
    for number in range(2 * MOST_ENGINES):
        tides.take(at(0.0), judged(f"e{number}"))
    assert len(tides.all()) == MOST_ENGINES
    tides.take(at(SPAN_SECONDS + 2 * STEP_SECONDS), judged("m"))
    assert list(tides.all()) == []  # there was no place for it yet
    tides.take(at(SPAN_SECONDS + 3 * STEP_SECONDS), judged("m"))
    assert list(tides.all()) == ["m"]


def moments(*seconds: float) -> list[Moment]:
    return [Moment(AT + second, 0.5, 0.1, 0.25, None, 90.0, 0) for second in seconds]


def test_a_hole_in_the_recording_is_one_in_the_drawing() -> None:
    whole = picture(moments(0, 5, 10, 15, 20), AT + 20)
    torn = picture(moments(0, 5, 100, 105), AT + 105)
    assert whole.count("<polygon") == 3  # cached, held, leaked
    assert torn.count("<polygon") == 6


def test_levels_are_where_they_belong() -> None:
    drawn = picture(moments(0, 5), AT + 5)
    tops = {css: float(y) for css, y in re.findall(r'area-(\w+)" points="[\d.]+,[\d.]+ [\d.]+,([\d.]+)', drawn)}
    top, bottom = 6.0, 150.0
    share = {css: (bottom - y) / (bottom - top) for css, y in tops.items()}
    assert {css: round(value, 2) for css, value in share.items()} == {"cached": 0.75, "held": 0.5, "leak": 0.1}


def test_one_moment_is_no_picture() -> None:
    assert "<svg" not in picture(moments(0), AT)
    assert "<svg" not in picture([], AT)


def test_the_page_and_the_api_have_it() -> None:
    tides = Tides()
    state = make_state(make_engine())
    for second in range(20):
        now = replace(state, at=state.at - 20 + second, monotonic=state.monotonic + second)
        tides.take(now, judged("m"))
    client = TestClient(build_app(lambda: state, tides=tides))
    assert '<svg class="tide"' in client.get("/").text
    rows = client.get("/api/v1/tide").json()["m"]
    assert len(rows) == len(tides.of("m"))
    assert rows[0]["held"] == 0.3
