"""Each rule refuses what is over it, and lets in what is not."""

from __future__ import annotations

from typing import Any

import pytest

from engine_hooks.frontend.admission.judge import REASONS, InFlight, Use, before_body, by_size, by_use
from engine_hooks.frontend.admission.rules import rules_of
from engine_hooks.frontend.admission.size import Size
from tests.unit.admission.asking import POOL

SMALL = Size(prompt_tokens=10, blocks=2, requests=1, most_blocks=2)


def use_judged(arguments: Any, use: Use, size: Size = SMALL, others: dict[str, Use] | None = None) -> Any:
    rules = rules_of(arguments)
    known = {"acme": use, **(others or {})}
    flight = InFlight(use, sum(one.blocks for one in known.values()), lambda name: known.get(name, Use()))
    return by_use(rules, size, POOL, flight, tenant="acme", quota=rules.quota_of("acme", None, POOL.blocks))


def test_without_rules_everything_is_let_in() -> None:
    rules = rules_of({})
    huge = Size(10**6, 10**6, 10**6, 10**6)
    assert before_body(rules, None) is None
    assert by_size(rules, huge, POOL) is None
    assert use_judged({}, Use(10**6, 10**6, 10**6), huge) is None


@pytest.mark.parametrize(
    ("arguments", "breaker", "reason", "status"),
    [
        ({"shed": True}, None, "shed", 503),
        ({"rate": 2}, "rate", "rate", 429),
        ({"in_flight": 3}, "in_flight", "in_flight", 503),
    ],
)
def test_before_the_body(arguments: Any, breaker: str | None, reason: str, status: int) -> None:
    refusal = before_body(rules_of({**arguments, "retry_after": 9}), breaker)
    assert refusal is not None
    assert (refusal.reason, refusal.status, refusal.retry_after) == (reason, status, 9)
    assert ("memory limit" in refusal.text) == (reason == "shed")


@pytest.mark.parametrize(
    ("arguments", "over", "not_over", "reason", "status"),
    [
        ({"prompt_limit": 100}, Size(101, 7, 1, 7), Size(100, 7, 1, 7), "prompt_limit", 400),
        ({"pool_share": 0.9}, Size(9, 91, 1, 91), Size(9, 180, 2, 90), "pool_share", 400),
        ({"max_prompt": 4096}, Size(4097, 9, 1, 9), Size(4096, 9, 1, 9), "long_prompt", 429),
    ],
)
def test_by_size(arguments: Any, over: Size, not_over: Size, reason: str, status: int) -> None:
    rules = rules_of(arguments)
    refusal = by_size(rules, over, POOL)
    assert refusal is not None
    assert (refusal.reason, refusal.status) == (reason, status)
    assert (refusal.retry_after is None) == (status == 400)
    assert ("exceeds limit" in refusal.text) == (status == 400)
    assert by_size(rules, not_over, POOL) is None


@pytest.mark.parametrize(("tokens", "advised"), [(5000, False), (8192, False), (8193, True)])
def test_very_long_prompts_are_sent_to_the_batch_path(tokens: int, advised: bool) -> None:
    refusal = by_size(rules_of({"max_prompt": 4096}), Size(tokens, 1, 1, 1), POOL)
    assert refusal is not None
    assert ("batch path" in refusal.text) == advised


@pytest.mark.parametrize(
    ("arguments", "over", "not_over", "reason"),
    [
        ({"quotas": {"acme": 10}}, Use(9, 1, 0), Use(8, 1, 0), "quota"),
        ({"default_quota": 10}, Use(9, 1, 0), Use(8, 1, 0), "quota"),
        ({"concurrency": {"acme": 2}}, Use(0, 2, 0), Use(99, 1, 0), "concurrency"),
        ({"default_concurrency": 0}, Use(), None, "concurrency"),
        ({"default_long_sessions": 1, "long_tokens": 9}, Use(0, 5, 1), Use(0, 5, 0), "long_sessions"),
    ],
)
def test_by_what_is_in_flight(arguments: Any, over: Use, not_over: Use | None, reason: str) -> None:
    refusal = use_judged(arguments, over)
    assert (refusal.reason, refusal.status, refusal.retry_after) == (reason, 429, 5)
    assert "acme" in refusal.text
    if not_over is not None:
        assert use_judged(arguments, not_over) is None


def test_the_refusal_names_tenant_quota_and_use() -> None:
    text = use_judged({"quotas": {"acme": 10}}, Use(9, 1, 0)).text
    assert "acme" in text
    assert "9 of 10 KV blocks" in text
    assert "needs about 2" in text


def test_a_short_request_is_no_long_session() -> None:
    arguments = {"default_long_sessions": 1, "long_tokens": 10}
    assert use_judged(arguments, Use(0, 5, 1)) is None  # 10 tokens are not over 10


@pytest.mark.parametrize(
    ("mine", "golds", "refused"), [(48, 0, False), (49, 0, True), (48, 20, False), (49, 20, True), (70, 60, False)]
)
def test_reserved_blocks_are_left_for_their_tenant(mine: int, golds: int, refused: bool) -> None:
    """Of 100 blocks 50 are gold's: others get what gold neither has nor may still take."""
    found = use_judged({"reserved": {"gold": 50}}, Use(mine, 1, 0), others={"gold": Use(golds, 1, 0)})
    assert (found is not None) == refused


def test_who_has_reserved_blocks_may_take_them() -> None:
    rules = rules_of({"reserved": {"acme": 50}})
    flight = InFlight(Use(), 98, lambda _name: Use())
    assert by_use(rules, SMALL, POOL, flight, tenant="acme", quota=None) is None


def test_every_reason_is_in_the_list() -> None:
    assert len(set(REASONS)) == len(REASONS) <= 16
