"""What readings say together: growth under saw-teeth, rates over restarts, pages that stand still."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from agent.sources.scrape import judge
from agent.sources.scrape.families import Reading
from agent.sources.scrape.growth import BIN_SECONDS, Floor, Growth, growth
from agent.sources.scrape.history import History, Trend
from agent.sources.scrape.page import Rejected

MINUTES = 60.0


def floor(value: Callable[[float], float], seconds: float = 240.0) -> Growth | None:
    found, kept = None, Floor()
    for second in range(int(seconds)):
        found = kept.add(float(second), value(float(second)))
    return found


# -- growth -----------------------------------------------------------------------------------------------


def test_a_ramp_is_its_slope_and_does_not_accelerate() -> None:
    found = floor(lambda at: 0.1 + 0.05 * at / 60)
    assert found is not None
    assert found.per_minute == pytest.approx(0.05)
    assert found.acceleration == pytest.approx(0, abs=1e-9)


def test_a_parabola_accelerates() -> None:
    found = floor(lambda at: 0.01 * (at / 60) ** 2)
    assert found is not None
    assert found.acceleration == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("period", [2, 7, 13, 20, 45, 60])
@pytest.mark.parametrize("amplitude", [0.1, 0.6])
def test_saw_teeth_do_not_grow_and_do_not_hide_growth(period: int, amplitude: float) -> None:
    def tooth(at: float) -> float:
        return 0.1 + amplitude * (at % period) / period

    level = floor(tooth)
    rising = floor(lambda at: tooth(at) + 0.08 * at / 60)
    assert level is not None
    assert rising is not None
    # A tooth that is longer than a bin moves the lowest values a little; a fifth of what one tooth rises in a minute.
    slack = 0.2 * amplitude * 60 / period if period > BIN_SECONDS else 0.01 * amplitude
    assert abs(level.per_minute) <= slack
    assert abs(rising.per_minute - 0.08) <= slack + 0.005


def test_noise_and_one_step_are_no_growth() -> None:
    draw = random.Random(7)
    found = floor(lambda at: 0.5 + draw.gauss(0, 0.02) + (0.2 if at > 200 else 0))
    assert found is not None
    assert abs(found.per_minute) < 0.03


def test_too_few_points_say_nothing() -> None:
    assert floor(lambda _: 0.5, seconds=5 * BIN_SECONDS) is None
    assert floor(lambda _: 0.5, seconds=5 * BIN_SECONDS + 2) == Growth(0, None)
    assert growth([]) is None


def test_a_gap_leaves_out_what_is_old() -> None:
    kept = Floor()
    for second in range(120):
        kept.add(float(second), 0.1)
    assert kept.add(4000.0, 0.9) is None
    assert kept.add(4020.0, 0.9) is None


# -- history ----------------------------------------------------------------------------------------------


def reading(**changes: float | None) -> Reading:
    values = {"usage": 0.5, "running": 4, "waiting": 0, "preemptions": 0, "prompt_tokens": 0, "generation_tokens": 0}
    return Reading(**values | changes)


def trend(readings: Iterable[Reading], history: History | None = None, start: float = 100.0) -> Trend:
    """One reading a second."""
    kept = history or History()
    for second, each in enumerate(readings):
        last = kept.add(start + second, each)
    return last


def test_rates_are_of_the_last_half_minute() -> None:
    found = trend(
        reading(generation_tokens=100 * n + (10_000 if n > 50 else 0), prompt_tokens=7 * n, preemptions=n // 20)
        for n in range(101)
    )
    assert found.generation_tokens_per_second == pytest.approx(100)
    assert found.prompt_tokens_per_second == pytest.approx(7)
    assert trend([reading(), reading(generation_tokens=5)]).generation_tokens_per_second is None, "too soon"
    assert trend(reading(generation_tokens=None) for _ in range(60)).generation_tokens_per_second is None


def test_the_hit_ratio_is_of_what_was_looked_up_meanwhile() -> None:
    found = trend(reading(prefix_queries=1000 + 10 * n, prefix_hits=900 + 3 * n) for n in range(60))
    assert found.prefix_hit_ratio == pytest.approx(0.3)
    assert trend(reading(prefix_queries=1000, prefix_hits=900) for _ in range(60)).prefix_hit_ratio is None


def test_a_restart_is_counted_and_fakes_no_rate() -> None:
    history = History()
    trend((reading(generation_tokens=1000 * n, usage=0.8) for n in range(60)), history)
    found = trend((reading(generation_tokens=10 * n, usage=0.1) for n in range(40)), history, start=200.0)
    assert found.resets == 1
    assert found.generation_tokens_per_second == pytest.approx(10)
    assert found.growth is None, "what was before the restart does not count"
    assert trend(reading(generation_tokens=n) for n in range(40)).resets == 0


# -- judging ----------------------------------------------------------------------------------------------


def test_a_page_that_stands_still_although_requests_run_is_stale() -> None:
    still = reading(generation_tokens=50)
    assert "mass abort" in judge.stale(still, trend([still] * 41), 1.0)
    assert not judge.stale(still, trend([still] * 20), 1.0)
    idle = reading(running=0, waiting=6)
    assert not judge.stale(idle, trend([idle] * 400), 1.0)
    moving = [reading(generation_tokens=n) for n in range(41)]
    assert not judge.stale(moving[-1], trend(moving), 1.0)


def test_a_page_that_is_old_by_its_own_word_is_stale() -> None:
    moving = [reading(generation_tokens=n) for n in range(41)]
    assert judge.stale(moving[-1], trend(moving), 75.0) == "the page itself is 75 s old, by its own word"


def test_bad_values_are_said_with_their_number() -> None:
    told = judge.impossible([Rejected("kv_cache_usage_perc", -0.38754, "negative"), Rejected("x", math.nan, "y")])
    assert told == "The engine says kv_cache_usage_perc = -0.3875, which can't be; not used, and 1 more."
    assert not judge.impossible([])
