"""A workload that is not what it was is named, and gets nobody up by itself."""

from __future__ import annotations

from typing import Any

import pytest

from agent.policy.types import DEFAULT, TEXTBOOK, Policy
from agent.verdicts.base import Finding
from agent.verdicts.workload_shift import WorkloadShift
from tests.unit.facts import facts, phases, signals
from tests.unit.timeline import times


def judge(policy: Policy = DEFAULT, **changes: Any) -> Finding | None:
    return WorkloadShift().judge(facts(policy, **changes))


@pytest.mark.parametrize(
    "quiet",
    [
        {},
        {"context_times": 1.9, "context_mean_tokens": 9000.0},
        {"context_times": 8.0, "settled": False},
        {"prompt_times": 1.9, "prompt_mean_tokens": 900.0},
        {"long_tail_ratio": 0.04, "long_tail_times": 4.0},  # few all the same
        {"long_tail_ratio": 0.5, "long_tail_times": 1.1},  # as ever
        {"request_p99_times": 4.0},  # slow is no shift
    ],
)
def test_it_is_quiet(quiet: dict[str, Any]) -> None:
    assert judge(**quiet) is None


@pytest.mark.parametrize(
    ("said", "default", "textbook"),
    [
        ({"context_times": 2.5, "context_mean_tokens": 5000.0}, "note", "warn"),
        ({"context_times": 6.0, "context_mean_tokens": 12_000.0}, "warn", "page"),
        ({"context_times": 2.5, "context_mean_tokens": 5000.0, "harm": True}, "warn", "warn"),
        ({"context_times": 6.0, "context_mean_tokens": 12_000.0, "harm": True}, "warn", "page"),
        ({"prompt_times": 4.9, "prompt_mean_tokens": 1500.0}, "note", "warn"),
        ({"prompt_times": 5.0, "prompt_mean_tokens": 1500.0}, "warn", "page"),
        ({"long_tail_ratio": 0.20, "long_tail_times": 2.0}, "note", "warn"),
        ({"long_tail_ratio": 0.35, "long_tail_times": 7.0}, "warn", "page"),
        ({"long_tail_ratio": 0.24, "long_tail_times": 3.0}, "warn", "page"),
        ({"long_tail_ratio": 0.19, "long_tail_times": 4.0}, "note", "page"),
    ],
)
def test_tiers(said: dict[str, Any], default: str, textbook: str) -> None:
    for policy, tier in ((DEFAULT, default), (TEXTBOOK, textbook)):
        finding = judge(policy, **said)
        assert finding is not None
        assert finding.tier == tier


def test_the_mean_of_a_few_contexts_is_no_shift() -> None:
    long = {"context_times": 6.0, "context_mean_tokens": 12_000.0}
    assert judge(**long, read={"running": 3}) is None
    assert judge(**long, read={"running": 4}) is not None


def test_it_names_the_shift_and_what_it_does() -> None:
    finding = judge(
        context_times=3.0,
        context_mean_tokens=6000.0,
        long_tail_ratio=0.35,
        long_tail_times=7.0,
        request_p99_times=2.4,
        request_p99_seconds=95.0,
        harm=True,
        read={"waiting": 5},
    )
    assert finding is not None
    assert finding.sentence == (
        "The workload has changed: contexts are 3.0 times as long as usual (6,000 tokens) and 35% of requests are "
        "longer than 4,096 tokens, where 5% is usual. The slowest 1% of requests take 2.4 times as long as usual (95 "
        "s). Requests feel it: 5 requests waiting."
    )
    assert finding.evidence == {
        "context_times": 3.0,
        "long_tail_ratio": 0.35,
        "long_tail_times": 7.0,
        "request_p99_times": 2.4,
        "waiting_requests": 5,
    }


def test_it_names_prompts_that_are_longer() -> None:
    finding = judge(prompt_times=6.2, prompt_mean_tokens=3086.0)
    assert finding is not None
    assert finding.sentence == "The workload has changed: prompts are 6.2 times as long as usual (3,086 tokens)."
    assert finding.evidence == {"prompt_times": 6.2}


def test_one_long_document_is_over_before_it_counts() -> None:
    def document(t: float) -> Any:
        return signals(context_times=6.0 if 10 <= t < 180 else 1.0)

    def stays(t: float) -> Any:
        return signals(context_times=6.0 if 10 <= t < 300 else 1.0)

    assert phases("workload_shift", times(600), document) == [(10.0, "suspect"), (180.0, "none")]
    assert phases("workload_shift", times(600), stays) == [
        (10.0, "suspect"),
        (190.0, "confirmed"),
        (479.0, "resolved"),
        (539.0, "none"),
    ]


@pytest.mark.parametrize(
    ("said", "default", "textbook"),
    [
        ({"repeated_ratio": 0.30}, None, None),
        ({"repeated_ratio": 0.40}, "note", "warn"),
        ({"repeated_ratio": 0.70}, "warn", "page"),
        ({"prompt_spread_times": 5.0}, None, None),
        ({"prompt_spread_times": 9.0}, "note", "warn"),
        ({"prompt_spread_times": 9.0, "harm": True}, "note", "warn"),  # lengths that differ are only noted
    ],
)
def test_repeated_text_and_the_spread_of_lengths(
    said: dict[str, Any], default: str | None, textbook: str | None
) -> None:
    for policy, tier in ((DEFAULT, default), (TEXTBOOK, textbook)):
        finding = judge(policy, **said)
        assert (finding and finding.tier) == tier
