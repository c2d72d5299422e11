"""Pressure is use with harm, unexplained growth, or a pool that fills before anybody can act; use alone is none."""

from __future__ import annotations

from typing import Any

import pytest

from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.verdicts.base import Finding
from agent.verdicts.kv_pressure import KvPressure
from tests.unit.details import make_allocation, make_detail
from tests.unit.facts import facts, forecast, phases, rate, signals
from tests.unit.timeline import pool, times


def judge(policy: Policy = DEFAULT, **changes: Any) -> Finding | None:
    return KvPressure().judge(facts(policy, **changes))


FULL = {"use_ratio": 0.97, "above_warn_seconds": 600.0, "above_page_seconds": 600.0}


@pytest.mark.parametrize(
    "quiet",
    [
        FULL,  # that is what throughput is
        FULL | {"harm": None},
        {"use_ratio": 0.6, "harm": True, "preempted_per_minute": 12.0},
        FULL | {"harm": True, "preempted_per_minute": 1.0, "read": {"waiting": 1}},
        FULL | {"harm": True, "read": {"waiting": 3, "running": 100}},
        {"use_ratio": 0.8, "growth": rate(0.5), "growth_above_page_seconds": 300.0, "exhaustion": forecast(30.0)},
        {"use_ratio": 0.8, "growth": rate(0.2), "unexplained": rate(0.0, 0.0), "growth_above_page_seconds": 900.0},
        {"use_ratio": 0.95, "unexplained": rate(0.06, -0.01)},
        {"use_ratio": 0.5, "unexplained": rate(0.2), "settled": False},
        {"use_ratio": 0.9, "queue": 400, "queue_above_page_seconds": 300.0},
        {"use_ratio": 0.9, "amplitude_ratio": 0.5, "floor_ratio": 0.45, "in_teeth": True},
    ],
    ids=[
        "full",
        "not told",
        "harm elsewhere",
        "hardly felt",
        "a few wait",
        "ramp",
        "explained",
        "unsure",
        "start",
        "queue for slots",
        "teeth",
    ],
)
def test_it_is_quiet_without_harm_and_without_growth_that_nobody_explains(quiet: dict[str, Any]) -> None:
    assert judge(**quiet) is None


def test_use_with_harm_warns_and_severe_harm_pages() -> None:
    finding = judge(use_ratio=0.9, harm=True, refused_per_minute=3.0, read={"waiting": 4})
    assert finding is not None
    assert (finding.tier, finding.confirm_seconds) == ("warn", 60.0)
    assert finding.sentence == "The KV pool is short: 90% of it is held and requests feel it: 4 requests waiting."
    assert finding.evidence == {"use_ratio": 0.9, "waiting_requests": 4, "refused_per_minute": 3.0}
    finding = judge(**FULL, harm=True, preempted_per_minute=12.0, latency_p99_seconds=2.5, read={"waiting": 4})
    assert finding is not None
    assert finding.tier == "page"
    assert finding.sentence == (
        "The KV pool is short: 97% of it is held and requests feel it: 4 requests waiting, 12 preemptions a minute and "
        "the slowest 1% waited 2.5 s for blocks."
    )
    assert judge(**FULL | {"above_page_seconds": 5.0}, harm=True, latency_p99_seconds=2.5) is not None
    short = judge(**FULL | {"above_page_seconds": 5.0}, harm=True, latency_p99_seconds=2.5)
    assert short is not None
    assert short.tier == "warn"


@pytest.mark.parametrize(
    ("harm", "tier"),
    [
        ({"latency_p99_seconds": 0.4}, "warn"),
        ({"latency_p99_seconds": 0.5}, "page"),
        ({"read": {"consecutive_refusals": 4, "waiting": 4}}, "warn"),
        ({"read": {"consecutive_refusals": 5}}, "page"),
        ({"queue_above_page_seconds": 1.0}, "page"),
        ({"rebuild_ratio": 0.29}, "warn"),
        ({"rebuild_ratio": 0.30}, "page"),
    ],
)
def test_what_is_severe(harm: dict[str, Any], tier: str) -> None:
    finding = judge(**FULL, harm=True, **harm)
    assert finding is not None
    assert finding.tier == tier


@pytest.mark.parametrize(
    ("read", "refused", "tier"),
    [
        ({"waiting_refused": 0, "waiting": 150}, 0.0, None),  # for a place among the running
        ({"waiting_refused": 1, "waiting": 150}, 0.0, "page"),
        ({"waiting_refused": 0, "waiting": 150}, 12.0, "page"),  # between two attempts
        ({"waiting_refused": None, "waiting": 150}, 0.0, "page"),  # nobody tells
    ],
)
def test_a_long_queue_counts_where_it_stands_for_memory(read: dict[str, Any], refused: float, tier: str | None) -> None:
    finding = judge(**FULL, harm=True, queue_above_page_seconds=60.0, refused_per_minute=refused, read=read)
    assert (finding and finding.tier) == tier


def test_a_large_request_waits_for_room_that_small_ones_never_leave() -> None:
    severe = {"harm": True, "refused_per_minute": 60.0, "latency_p99_seconds": 29.0}
    finding = judge(use_ratio=0.76, **severe)
    assert finding is not None
    assert finding.tier == "warn"
    assert judge(use_ratio=0.69, **severe) is None
    finding = judge(use_ratio=0.76, **severe, queue_above_page_seconds=10.0)
    assert finding is not None
    assert finding.tier == "page", "more than a hundred wait"


def test_unexplained_growth() -> None:
    finding = judge(unexplained=rate(0.06), growth_above_page_seconds=0.0)
    assert finding is not None
    assert (finding.tier, finding.confirm_seconds) == ("warn", 60.0)
    assert finding.sentence == "Held blocks grow by 6.0% of the pool a minute that no live request accounts for."
    finding = judge(unexplained=rate(0.1), unexplained_above_page_seconds=180.0)
    assert finding is not None
    assert finding.tier == "page"
    finding = judge(use_ratio=0.75, unexplained=rate(0.07), exhaustion=forecast(210.0))
    assert finding is not None
    assert finding.tier == "page"
    assert "the pool is full in about 3 min." in finding.sentence
    assert finding.evidence["exhaustion_seconds"] == 210.0
    finding = judge(use_ratio=0.65, unexplained=rate(0.07), exhaustion=forecast(290.0))
    assert finding is not None
    assert finding.tier == "warn", "less than 70 % are held"
    finding = judge(unexplained=rate(0.06), doubling_seconds=100.0)
    assert finding is not None
    assert finding.sentence.endswith("accounts for, and faster and faster.")


def test_a_pool_that_running_requests_fill_within_a_minute() -> None:
    growth = {"use_ratio": 0.92, "growth": rate(0.10), "exhaustion": forecast(48.0), "blocks_per_running": 57.5}
    decoding = judge(**growth, running_more=0)
    assert decoding is not None
    assert decoding.sentence == (
        "The KV pool is full in about 48 s: 92% of it is held, and what runs goes on growing. Then running requests "
        "are thrown out and begin again."
    )
    assert decoding.tier == "warn"
    assert judge(**growth, running_more=3) is None, "new requests fill it: admission ends that by itself"
    assert judge(**growth | {"use_ratio": 0.85}, running_more=0) is None
    assert judge(**growth | {"exhaustion": forecast(61.0)}, running_more=0) is None


def test_a_long_queue_on_a_page() -> None:
    page = {"hooked": False, "waiting": 98, "running": 2}
    finding = judge(use_ratio=0.86, queue=98, read=page)
    assert finding is not None
    assert (finding.sentence, finding.tier) == ("86% of the KV pool is held, and 98 requests wait.", "warn")
    assert judge(use_ratio=0.5, queue=98, read=page) is None
    assert judge(use_ratio=0.86, queue=40, read=page) is None


def test_slow_taking() -> None:
    finding = judge(take_p99_seconds=0.06)
    assert finding is not None
    assert finding.sentence == "To take blocks from the pool takes 60 ms (p99), which should be well under 1 ms."
    assert judge(take_p99_seconds=0.04) is None


def test_fp8_lowers_the_thresholds() -> None:
    harmed = {"use_ratio": 0.75, "harm": True, "preempted_per_minute": 5.0}
    assert judge(**harmed, read={"cache_dtype": "auto"}) is None
    finding = judge(**harmed, read={"cache_dtype": "fp8_e4m3"})
    assert finding is not None
    assert finding.tier == "warn"
    finding = judge(use_ratio=0.81, harm=True, latency_p99_seconds=1.0, read={"cache_dtype": "fp8"})
    assert finding is not None
    assert finding.tier == "page"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"orphaned": 200}, "200 blocks are leaked (20% of the pool): a restart alone brings those back."),
        ({"delayed": 300}, "300 blocks are kept for a connector: see whether its peer answers."),
        ({"cached_idle": 0}, "Nothing is left to evict."),
        ({}, "Evicting cached blocks gains nothing: idle ones count as free."),
        ({}, "it ends by itself when load falls."),
    ],
)
def test_the_remedy_says_what_helps_and_what_does_not(changes: dict[str, int], part: str) -> None:
    finding = judge(**FULL, harm=True, latency_p99_seconds=0.2, pool=pool(held=970, **changes))
    assert finding is not None
    assert part in finding.remedy


# -- textbook -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "tier", "seconds"),
    [
        ({"use_ratio": 0.86}, "warn", 30.0),
        (FULL, "page", 10.0),
        ({"growth": rate(0.06)}, "warn", 30.0),
        ({"growth": rate(0.09), "growth_above_page_seconds": 180.0}, "page", 0.0),
        ({"growth": rate(0.03), "doubling_seconds": 100.0}, "page", 30.0),
        ({"use_ratio": 0.75, "exhaustion": forecast(200.0)}, "page", 10.0),
        ({"latency_p99_seconds": 0.06}, "warn", 5.0),
        ({"latency_p99_seconds": 0.6}, "page", 5.0),
        ({"queue": 51}, "warn", 5.0),
        ({"queue": 101}, "page", 5.0),
        ({"amplitude_ratio": 0.31, "floor_ratio": 0.41}, "warn", 60.0),
    ],
)
def test_textbook_judges_the_numbers_alone(said: dict[str, Any], tier: str, seconds: float) -> None:
    finding = judge(TEXTBOOK, **said)
    assert finding is not None
    assert (finding.tier, finding.confirm_seconds) == (tier, seconds)
    assert finding.sentence.endswith(".")
    assert finding.remedy
    assert judge(**said) is None, "the default profile asks for harm"


def test_textbook_refusals() -> None:
    row = make_allocation(consecutive_refusals=5, most_retries=0)
    finding = judge(TEXTBOOK, detail=make_detail(allocation=row))
    assert finding is not None
    assert (finding.sentence, finding.tier) == ("Memory was refused 5 times in a row.", "page")
    row = make_allocation(consecutive_refusals=0, most_retries=4)
    finding = judge(TEXTBOOK, detail=make_detail(allocation=row))
    assert finding is not None
    assert (finding.sentence, finding.tier) == ("One waiting request was refused memory 4 times.", "warn")
    assert judge(TEXTBOOK) is None


# -- over time ----------------------------------------------------------------------------------------------


def test_it_is_suspected_confirmed_after_a_minute_and_does_not_flap() -> None:
    def said(t: float) -> Any:
        short = 10 <= t < 200 and t % 40 < 35  # for five seconds of forty the pool is below
        return signals(use_ratio=0.9 if short else 0.8, harm=t >= 10, preempted_per_minute=5.0)

    # The suspicion of the first 25 s goes away; the next one lasts.
    def steady(t: float) -> Any:
        return signals(use_ratio=0.9 if 10 <= t < 200 else 0.8, harm=True, preempted_per_minute=5.0)

    assert phases("kv_pressure", times(400), steady) == [
        (10.0, "suspect"),
        (70.0, "confirmed"),
        (229.0, "resolved"),
        (289.0, "none"),
    ]
    assert [phase for _, phase in phases("kv_pressure", times(400), said) if phase == "confirmed"] == []

    def flaps(t: float) -> Any:
        return steady(t) if t < 75 or t % 40 < 35 else signals(use_ratio=0.8, harm=True, preempted_per_minute=5.0)

    assert [phase for _, phase in phases("kv_pressure", times(400), flaps)] == [
        "suspect",
        "confirmed",
        "resolved",
        "none",
    ]


@pytest.mark.parametrize(
    ("said", "tier", "words"),
    [
        ({"failed_ratio": 0.01}, None, ""),
        ({"failed_ratio": 0.03}, "warn", "3.0% of the requests that ended have failed."),
        ({"failed_ratio": 0.06}, "page", "6.0% of the requests"),
        ({"request_p99_times": 1.5}, None, ""),
        ({"request_p99_times": 2.0}, "warn", "take 2.0 times as long as usual"),
        ({"request_p99_times": 3.1}, "page", "3.1 times"),
        ({"kv_p90_bytes": 8 * 10**9, "kv_p99_bytes": 12 * 10**9}, None, ""),
        (
            {"kv_p90_bytes": 9 * 10**9, "kv_p99_bytes": 10 * 10**9},
            "warn",
            "8.4 GiB or more in a tenth of the last half",
        ),
        ({"kv_p90_bytes": 7 * 10**9, "kv_p99_bytes": 13 * 10**9}, "page", "12.1 GiB at its peaks"),
    ],
)
def test_textbook_errors_latency_and_quantiles(said: dict[str, Any], tier: str | None, words: str) -> None:
    finding = judge(TEXTBOOK, **said)
    assert (finding and finding.tier) == tier
    assert finding is None or words in finding.sentence
    assert judge(**said) is None, "in the default profile these are no pressure by themselves"


@pytest.mark.parametrize(("failed", "tier"), [(0.005, None), (0.02, "warn"), (0.9, "warn")])
def test_requests_that_fail_are_harm(failed: float, tier: str | None) -> None:
    finding = judge(**FULL, harm=True, failed_ratio=failed)
    assert (finding and finding.tier) == tier
    assert finding is None or f"{failed:.1%} of requests failed" in finding.sentence
