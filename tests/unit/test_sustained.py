"""What a number was over the last half minute, and the health score that goes by it: it does not jump under load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agent.policy.types import DEFAULT
from agent.signals.node import NodeTracker
from agent.signals.score import scores
from agent.signals.sustained import MOST_SAMPLES, WINDOW_SECONDS, Sustained
from agent.signals.types import NodeSignals
from agent.state import AgentState
from tests.unit.builders import make_engine, make_pool, make_state
from tests.unit.test_score import GIB, node


def test_each_value_counts_for_as_long_as_it_stood() -> None:
    kept = Sustained()
    assert kept.take(0.0, 0.4) == 0.4
    assert kept.take(10.0, 1.0) == 1.0  # of what was before nobody knows how long it stood
    assert kept.take(25.0, 0.0) == pytest.approx(0.4)
    assert kept.take(70.0, 0.5) == 0.5  # what was before is over
    assert kept.take(71.0, None) is None
    assert kept.take(72.0, 0.7) == 0.7


@given(st.lists(st.tuples(st.floats(0.01, 20), st.floats(0, 1)), min_size=1, max_size=400))
def test_it_is_bounded_and_between_its_values(steps: list[tuple[float, float]]) -> None:
    kept, now = Sustained(), 0.0
    for apart, value in steps:
        now += apart
        mean = kept.take(now, value)
        assert mean is not None
        assert -1e-9 <= mean <= 1 + 1e-9
    assert len(kept._samples) <= MOST_SAMPLES
    last = [value for _, _, value in kept._samples]
    assert min(last) - 1e-6 <= mean <= max(last) + 1e-6


def _score(state: AgentState, signals: NodeSignals, scope: str = "kv") -> float:
    told = replace(signals, engines=tuple(replace(each, harm=True) for each in signals.engines))
    found = {(each.scope, each.form, each.engine or each.gpu): each.value for each in scores(state, told, (), DEFAULT)}
    return found[scope, "kvtide", "m" if scope == "kv" else "0"]


def _moment(second: int, held: int) -> AgentState:
    engine = make_engine(pool=make_pool(held=held, cached_idle=0, empty=1000 - held, orphaned=0))
    return make_state(engine, at=1e9 + second, monotonic=float(second))


def test_the_score_of_a_small_pool_under_load_does_not_jump() -> None:
    tracker = NodeTracker(DEFAULT)
    found = []
    for second in range(200):
        state = _moment(second, 1000 if second % 3 else 400)  # full, full, half empty, full ...
        found.append(_score(state, tracker.take(state)))
    steady = found[60:]
    assert max(steady) - min(steady) < 15
    assert 45 <= sum(steady) / len(steady) <= 55  # a fifth of it is free on average


def test_a_pool_that_fills_and_stays_full_has_no_points_a_half_a_minute_later() -> None:
    tracker = NodeTracker(DEFAULT)
    values = {}
    for second in range(200):
        state = _moment(second, 300 if second < 100 else 1000)
        values[second] = _score(state, tracker.take(state))
    assert values[99] > 99
    assert values[128] < values[124] < 99
    assert values[100 + int(WINDOW_SECONDS)] == 0


def test_a_gpu_s_score_goes_by_what_its_pools_left_free_over_the_half_minute() -> None:
    tracker = NodeTracker(DEFAULT)
    found = []
    for second in range(200):
        kv = 18 if second % 2 else 2
        state = node(parts={"weights": 40, "kv_held": 20 - kv, "kv_cached_idle": 0, "kv_empty": kv, "context": 12})
        state = replace(state, monotonic=float(second), at=1e9 + second)
        signals = tracker.take(state)
        (gpu,) = signals.gpus
        found.append(gpu.kv_free_mean_bytes)
    assert found[-1] == pytest.approx(10 * GIB, rel=0.05)
    assert _score(state, replace(signals, allocators=_tried_again()), "device") == pytest.approx(62.5, abs=5)
    assert tracker.take(replace(state, monotonic=201.0, waterfalls=())).gpus[0].kv_free_mean_bytes is None


def _tried_again():  # type: ignore[no-untyped-def]
    from tests.unit.test_score import signals

    return signals(0.5, harm=True, retries_per_minute=1.0).allocators
