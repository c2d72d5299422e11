"""The rules of an order: what is taken, what is refused, and the quota formula."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.frontend.admission.rules import MAX_ENTRIES, NAMES, Rules, rules_of
from engine_hooks.frontend.tenant_map import Quota
from engine_hooks.levers.base import RefusedError
from engine_hooks.levers.orders import ActionOrder, Arguments

GOOD: dict[str, Any] = {
    "shed": False,
    "retry_after": 7,
    "quotas": {"acme": 10},
    "default_quota": 20,
    "map_quotas": True,
    "sla_factors": {"acme": 0.5},
    "paid_factors": {"acme": 2.0},
    "reserved": {"gold": 5},
    "concurrency": {"acme": 3},
    "default_concurrency": 4,
    "long_sessions": {"acme": 1},
    "default_long_sessions": 2,
    "long_tokens": 4096,
    "max_prompt": 4096,
    "batch_prompt": 8192,
    "prompt_limit": 10_000,
    "max_tokens": 256,
    "pool_share": 0.9,
    "rate": 12.5,
    "burst": 30,
    "in_flight": 8,
    "short_first": True,
    "short_tokens": 100,
    "long_wait_seconds": 1.5,
    "pressure": 85,
    "clean": True,
}


def test_every_rule_is_taken_as_it_was_ordered() -> None:
    assert set(GOOD) == NAMES
    rules = rules_of(GOOD)
    assert {name: getattr(rules, name) for name in NAMES} == GOOD
    assert rules_of({}) == Rules()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("quota", 5),
        ("shed", 1),
        ("shed", "yes"),
        ("quotas", 5),
        ("quotas", {"acme": -1}),
        ("quotas", {"acme": 1.5}),
        ("quotas", {"acme": float("nan")}),
        ("quotas", {"acme": float("inf")}),
        ("quotas", {"acme": True}),
        ("concurrency", {"acme": 2**21}),
        ("paid_factors", {"acme": 1e9}),
        ("retry_after", 0),
        ("max_tokens", 0),
        ("max_tokens", 2.5),
        ("max_tokens", "many"),
        ("pool_share", 0),
        ("pool_share", 1.01),
        ("pool_share", float("nan")),
        ("rate", 0),
        ("long_wait_seconds", 2.1),
        ("pressure", 101),
        ("reserved", {f"t{n}": 1 for n in range(33)}),
    ],
)
def test_what_is_no_rule_is_refused(name: str, value: Any) -> None:
    with pytest.raises(RefusedError, match=name) as refused:
        rules_of({**GOOD, name: value})
    assert refused.value.code == "bad_argument"


def test_all_tables_together_are_bounded() -> None:
    half = {f"t{n}": 1 for n in range(MAX_ENTRIES // 2)}
    assert rules_of({"quotas": half, "concurrency": half})
    with pytest.raises(RefusedError, match="all tables"):
        rules_of({"quotas": half, "concurrency": {**half, "one more": 1}})


def test_a_rate_alone_has_a_seconds_burst() -> None:
    assert (rules_of({"rate": 12.5}).burst, rules_of({"rate": 0.1}).burst) == (12, 1)


@pytest.mark.parametrize(
    ("arguments", "mapped", "quota"),
    [
        ({}, None, None),
        ({"quotas": {"acme": 10}}, Quota(blocks=99), 10),
        ({}, Quota(blocks=99), 99),
        ({"map_quotas": False}, Quota(blocks=99), None),
        ({"map_quotas": False, "default_quota": 7}, Quota(blocks=99), 7),
        ({"default_quota": 7}, Quota(ratio=0.25), 250),
        ({"default_quota": 7}, Quota(), 7),
        ({"default_quota": 100, "sla_factors": {"acme": 0.5}, "paid_factors": {"acme": 2}}, None, 300),
        ({"default_quota": 100, "sla_factors": {"other": 0.5}}, None, 100),
        ({"quotas": {"acme": 0}}, None, 0),
    ],
)
def test_the_quota_formula(arguments: Arguments, mapped: Quota | None, quota: int | None) -> None:
    assert rules_of(arguments).quota_of("acme", mapped, 1000) == quota


_argument = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=True),
    st.text(max_size=8),
    st.dictionaries(st.sampled_from(["a", "b"]), st.one_of(st.integers(-(2**60), 2**60), st.floats(allow_nan=True))),
)


@given(st.dictionaries(st.one_of(st.sampled_from(sorted(NAMES)), st.text(max_size=5)), _argument, max_size=6))
def test_any_arguments_make_rules_or_a_refusal(arguments: Arguments) -> None:
    code, rules = "", Rules()
    try:
        rules = rules_of(arguments)
    except RefusedError as refused:
        code = refused.code
    assert code in ("", "bad_argument")
    quota = rules.quota_of("a", None, 100)
    assert quota is None or quota >= 0


def test_what_the_wire_carries_is_what_is_read() -> None:
    order = ActionOrder(action="a", lever="admission", op="apply", instance="i", arguments=GOOD)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=ActionOrder)
    assert rules_of(back.arguments) == rules_of(GOOD)
