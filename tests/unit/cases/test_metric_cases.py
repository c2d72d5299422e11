"""Reports on what engines say of themselves: frozen, impossible, split, renamed, missing numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.sources.scrape.families import Reading, reading_of
from agent.sources.scrape.page import PageReader
from agent.sources.scrape.reporters import Reporters
from agent.state import AgentState
from tests.unit.timeline import page, source, state, times, watch


def readings(text: str) -> list[Reading]:
    """What a page says, one reading for each engine on it."""
    rows = PageReader().read(text).rows
    return [reading_of(key.kind, Reporters().choose(key.kind, row, 0.0)) for key, row in rows.items()]


def frozen(t: float, since: float) -> AgentState:
    """The gauges of kv-16, which stay as they were when everything was aborted."""
    gauges = {"running": 106, "waiting": 15, "preemptions": 30}
    if t < since:
        return state(t, pages=[page(usage_ratio=0.904, generation_tokens=int(2000 * t), **gauges)])
    if t < since + 10:
        return state(t, pages=[page(usage_ratio=0.904, generation_tokens=int(2000 * since), **gauges)])
    reason = f"nothing on its page has changed for {t - since:.0f} s"
    silent = page(
        usage_ratio=None,
        held_blocks=None,
        running=None,
        waiting=None,
        preemptions=None,
        prompt_tokens=None,
        generation_tokens=None,
        generation_tokens_per_second=None,
        phase="stale",
        reason=reason,
    )
    return state(t, pages=[silent])


@pytest.mark.parametrize("case", ["kv-16", "kv-24", "met-11"])
def test_gauges_that_are_frozen_are_a_stale_sensor_and_no_leak(case: str) -> None:
    seen = watch(frozen(t, since=60.0) for t in times(600))
    assert seen.kinds() == {"sensor_stale"}, case
    verdict = seen.of("sensor_stale")
    assert "s" in str(verdict.subject)
    assert "frozen" in verdict.sentence or "changed" in verdict.sentence or "nothing new" in verdict.sentence


@pytest.mark.parametrize("case", ["kv-21", "lm-05", "lm-06"])
def test_numbers_that_cannot_be_are_told_and_not_used(case: str) -> None:
    def states() -> Iterator[AgentState]:
        for t in times(300):
            broken = page(
                usage_ratio=None,
                held_blocks=None,
                bad_values={"negative": int(t)},
                generation_tokens=int(80 * t),
            )
            yield state(t, pages=[broken])

    seen = watch(states())
    assert seen.kinds() == {"bad_metric"}, case
    assert seen.pages() == set()


def test_kv_23_one_sample_that_cannot_be_tells_nobody() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(600):
            odd = 100 <= t < 101
            yield state(
                t,
                pages=[
                    page(
                        usage_ratio=None if odd else 0.4,
                        held_blocks=None if odd else 400,
                        bad_values={"negative": 1} if t >= 100 else {},
                        generation_tokens=int(80 * t),
                    )
                ],
            )

    assert watch(states()).kinds() == set()


def test_kv_21_the_page_of_a_decode_rank() -> None:
    row = next(
        iter(
            PageReader().read('vllm:kv_cache_usage_perc{engine="3",model_name="m"} -0.3875395987328405\n').rows.values()
        )
    )
    assert [(each.name, each.value) for each in row.rejected] == [("kv_cache_usage_perc", -0.3875395987328405)]


def test_met_01_eight_api_servers_of_which_one_knows() -> None:
    values = [0, 0, 0.6530455880475035, 0, 0, 0, 0, 0]
    text = "".join(
        f'vllm:kv_cache_usage_perc{{engine="0",model_name="m",pid="{pid}"}} {value}\n'
        for pid, value in enumerate(values)
    )
    (reading,) = readings(text)
    assert reading.usage == 0.6530455880475035


def test_sg_12_a_pool_that_each_tensor_parallel_rank_repeats_counts_once() -> None:
    ranks = "".join(f'sglang:max_total_num_tokens{{model_name="m",tp_rank="{n}"}} 262144.0\n' for n in range(4))
    labels = '{model_name="m",tp_rank="0"}'
    used = f"sglang:num_used_tokens{labels} 239901.0\nsglang:token_usage{labels} 0.915\n"
    (reading,) = readings(ranks + used)
    assert reading.usage == 0.915


def test_sg_11_a_hit_rate_in_percent_is_no_ratio() -> None:
    text = 'sglang:token_usage{model_name="m"} 0.4\nsglang:cache_hit_rate{model_name="m"} 87.58777633289988\n'
    (reading,) = readings(text)
    assert reading.usage == 0.4
    ratios = [value for name, value in ((n, getattr(reading, n)) for n in reading.__struct_fields__) if "ratio" in name]
    assert all(value is None or 0 <= value <= 1 for value in ratios)


def test_met_10_names_that_ray_has_changed_are_known() -> None:
    for prefix in ("ray_vllm:", "ray_vllm_"):
        (reading,) = readings(f'{prefix}kv_cache_usage_perc{{model_name="m",engine="0"}} 0.25\n')
        assert reading.usage == 0.25, prefix


def test_met_08_an_empty_page_is_no_data_and_no_zero() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(300):
            empty = page(
                phase="bad_page",
                reason="the page is empty",
                usage_ratio=None,
                held_blocks=None,
                running=None,
                waiting=None,
                preemptions=None,
                prompt_tokens=None,
                generation_tokens=None,
                generation_tokens_per_second=None,
            )
            yield state(t, pages=[empty])

    seen = watch(states())
    assert seen.kinds() <= {"sensor_stale", "bad_metric", "engine_missing"}
    assert seen.kinds()
    (verdict,) = [each for _, each in seen.confirmed]
    assert "empty" in verdict.sentence


def test_nv_27_a_sensor_that_restarts_is_no_event_of_an_engine() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(3600, 5):
            down = t % 1200 < 40
            health = source("device", up=not down, reason="NVML is being loaded" if down else "")
            yield state(t, sources=(health,), pages=[page(generation_tokens=int(80 * t))])

    assert watch(states()).pages() == set()
