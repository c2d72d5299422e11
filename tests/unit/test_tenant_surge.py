"""A tenant that grows is a surge only where others pay for it; long sessions are nobody's fault."""

from __future__ import annotations

from typing import Any

import pytest

from agent.policy.types import DEFAULT, TEXTBOOK, Policy, TenantPolicy
from agent.signals.types import NodeSignals, TenantSignals
from agent.subject import Subject
from agent.verdicts.base import Finding, View
from agent.verdicts.tenant_surge import TenantSurge
from tests.unit.facts import phases, signals
from tests.unit.timeline import engine, state, times


def tenant(name: str = "acme", **changes: Any) -> TenantSignals:
    values: dict[str, Any] = {"engine": "m", "tenant": name, "share_ratio": 0.2, "share_times": 1.0}
    return TenantSignals(**values | changes)


def judge(*tenants: TenantSignals, harm: bool = True, policy: Policy = DEFAULT) -> dict[Subject, Finding]:
    view = View(state(0.0, engines=(engine(),)), NodeSignals(engines=(signals(harm=harm),), tenants=tenants), policy)
    return dict(TenantSurge().judge(view))


GROWN = {"share_ratio": 0.6, "share_times": 3.0, "requests_times": 4.0}
REQUESTS = {"requests_per_minute": 30.0, "requests_times": 3.5}
SUFFERS = tenant("small", waiting=3)


@pytest.mark.parametrize(
    ("tenants", "harm"),
    [
        ((tenant(**GROWN), SUFFERS), False),  # nobody waits for memory
        ((tenant(**GROWN), tenant("small")), True),  # no other waits
        ((tenant(**GROWN | {"waiting": 9}),), True),  # it is alone
        ((tenant(share_ratio=0.29, share_times=9.0), SUFFERS), True),  # a small one
        ((tenant(share_ratio=0.7, share_times=1.2), SUFFERS), True),  # it has always been large
        ((tenant(**GROWN), tenant("small", waiting=3, share_ratio=0.3, share_times=2.6, **REQUESTS)), True),
        ((tenant("none", **GROWN), SUFFERS), True),  # no tenant
        ((tenant("other", **GROWN), SUFFERS), True),
        ((tenant(quota_ratio=0.79),), False),
        ((tenant(session_median_seconds=7200.0),), True),
    ],
    ids=[
        "no harm",
        "no other waits",
        "alone",
        "small",
        "large as ever",
        "all have more",
        "unmarked",
        "folded",
        "quota",
        "sessions",
    ],
)
def test_it_is_quiet(tenants: tuple[TenantSignals, ...], harm: bool) -> None:
    assert judge(*tenants, harm=harm) == {}


def test_it_says_who_and_what_others_feel() -> None:
    found = judge(tenant(**GROWN), tenant("small", waiting=3, preempted_per_minute=2.0))
    subject = Subject(scope="tenant", engine="m", tenant="acme")
    assert set(found) == {subject}
    assert found[subject].sentence == (
        "Tenant acme holds 60% of the KV pool, with 3.0 times its usual share and 4.0 times its usual requests, while "
        "3 requests of others wait and others are thrown out 2 times a minute."
    )
    assert found[subject].tier == "warn"
    assert found[subject].evidence["others_waiting_requests"] == 3
    assert "429" in found[subject].remedy


def test_one_of_two_things_that_all_have_more_of_is_not_told_of() -> None:
    more = tenant("small", waiting=3, share_ratio=0.2, share_times=1.0, **REQUESTS)
    (finding,) = judge(tenant(**GROWN), more).values()
    assert "3.0 times its usual share, while" in finding.sentence
    assert "requests_times" not in finding.evidence


def test_before_anything_is_usual_it_is_one_that_sends_far_more_than_all_others() -> None:
    new = {"share_times": None, "share_ratio": 0.8}
    small = tenant("small", share_times=None, waiting=3, requests_per_minute=20.0)
    (finding,) = judge(tenant(**new, requests_per_minute=90.0), small).values()
    assert finding.sentence == (
        "Tenant acme holds 80% of the KV pool, with 4.5 times as many requests as all others together, while 3 "
        "requests of others wait."
    )
    assert judge(tenant(**new, requests_per_minute=50.0), small) == {}
    assert judge(tenant(share_ratio=0.8, share_times=1.1, requests_per_minute=90.0), small) == {}, "as ever"


def test_before_anything_is_usual_it_is_one_whose_share_has_jumped() -> None:
    new: dict[str, Any] = {"share_times": None, "requests_per_minute": 20.0}
    small = tenant("small", **new, share_ratio=0.05, early_share_times=0.4, waiting=3)
    (finding,) = judge(tenant(**new, share_ratio=0.9, early_share_times=4.5), small).values()
    assert finding.sentence == (
        "Tenant acme holds 90% of the KV pool, with 4.5 times its share of the minutes before, while 3 requests of "
        "others wait."
    )
    assert judge(tenant(**new, share_ratio=0.9, early_share_times=1.2), small) == {}, "long sessions, as ever"
    assert judge(tenant(**new, share_ratio=0.45, early_share_times=4.5), small) == {}, "most is not its own"
    assert judge(tenant(**new, share_ratio=0.9, early_share_times=4.5), tenant("small", **new)) == {}, "there is room"
    more = tenant("small", **new, share_ratio=0.4, early_share_times=3.0, waiting=3)
    assert judge(tenant(**new, share_ratio=0.55, early_share_times=3.0), more) == {}, "all have more"


@pytest.mark.parametrize(
    ("ratio", "policy", "tier"),
    [(0.81, DEFAULT, "note"), (1.0, DEFAULT, "warn"), (0.81, TEXTBOOK, "warn"), (1.02, TEXTBOOK, "page")],
)
def test_quotas(ratio: float, policy: Policy, tier: str) -> None:
    (finding,) = judge(tenant(quota_ratio=ratio), harm=False, policy=policy).values()
    assert finding.tier == tier
    assert finding.sentence == f"Tenant acme holds {ratio:.0%} of its quota of KV blocks."


def test_sessions_are_judged_by_the_textbook_unless_they_are_meant_to_be_long() -> None:
    long = tenant(session_median_seconds=900.0)
    (finding,) = judge(long, policy=TEXTBOOK).values()
    assert (finding.tier, finding.sentence) == ("page", "Half of tenant acme's sessions live longer than 15 min.")
    (finding,) = judge(tenant(session_median_seconds=150.0), policy=TEXTBOOK).values()
    assert finding.tier == "warn"
    marked = Policy(profile="textbook", tenants=TenantPolicy(long_session=("acme",)))
    assert judge(long, policy=marked) == {}
    (finding,) = judge(tenant(session_median_seconds=900.0, session_times=2.5), policy=marked).values()
    assert finding.sentence.endswith("15 min, 2.5 times as long as usual.")


def test_names_from_outside_steer_nothing() -> None:
    (finding,) = judge(tenant("a\x1b[31m", **GROWN), SUFFERS).values()
    assert "\x1b" not in finding.sentence


def test_over_time() -> None:
    def grows(t: float) -> tuple[TenantSignals, ...]:
        return (tenant(**GROWN if 10 <= t < 100 else {}), SUFFERS)

    assert phases("tenant_surge", times(300), lambda _: signals(harm=True), tenants=grows) == [
        (10.0, "suspect"),
        (40.0, "confirmed"),
        (159.0, "resolved"),
        (219.0, "none"),
    ]
