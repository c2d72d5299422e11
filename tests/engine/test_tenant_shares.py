"""Tenants' shares of the pool on vLLM's real scheduler: exact, also when they are walked in slices."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.v1.request import RequestStatus

from engine_hooks.core import shares, tenants
from tests.bed.scheduler import step
from tests.engine.tenants import Tenants, held, make, rows, watch

ACTIONS = ["add", "add", "step", "step", "abort", "reset", "preempt"]


def test_shared_blocks_are_divided_by_their_holders() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme", ntok=160, shared_prefix=160))
    step(watched.scheduler)
    for i in (1, 2):
        watched.scheduler.add_request(make(i, "umbrella", ntok=170, shared_prefix=160))
    step(watched.scheduler)
    seen = rows(watched)
    acme, umbrella = seen["acme"], seen["umbrella"]
    assert acme.held == pytest.approx(10 / 3 + (acme.references - 10))
    assert umbrella.held == pytest.approx(2 * 10 / 3 + (umbrella.references - 2 * 10))
    assert sum(row.held for row in seen.values()) == pytest.approx(held(watched))
    assert acme.references + umbrella.references == held(watched) + 2 * 10


@pytest.mark.parametrize("window", [None, 64])
def test_shares_add_up_with_and_without_a_sliding_window(window: int | None) -> None:
    watched = watch(sliding_window=window)
    for i in range(8):
        watched.scheduler.add_request(make(i, f"t{i % 3}", ntok=400, max_tokens=500, shared_prefix=128))
    for _ in range(200):
        step(watched.scheduler)
    managers = watched.observer._view.managers
    nulls = sum(block.is_null for m in managers for table in m.req_to_blocks.values() for block in table)
    assert (nulls > 0) == (window is not None)
    seen = rows(watched).values()
    assert sum(row.held for row in seen) == pytest.approx(held(watched))
    entries = sum(len(table) for m in managers for table in m.req_to_blocks.values())
    assert sum(row.references for row in seen) == entries - nulls


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.sampled_from(["add", "add", "step", "step", "abort", "reset", "preempt"]), max_size=60), st.integers()
)
def test_shares_sum_to_what_is_held_and_totals_never_fall(actions: list[str], seed: int) -> None:
    watched = watch(120, max_num_seqs=16)
    draw, serial, before = random.Random(seed), 0, Totals()
    for action in actions:
        if action == "add":
            serial += 1
            session = draw.choice(["", "s1", "s2"])
            tenant = f"t{draw.randrange(40)}"
            watched.scheduler.add_request(
                make(serial, tenant, session, draw.randrange(20, 400), max_tokens=30, shared_prefix=20)
            )
        elif action == "step":
            step(watched.scheduler)
        elif action == "abort" and watched.scheduler.requests:
            chosen = draw.choice(list(watched.scheduler.requests))
            watched.scheduler.finish_requests(chosen, RequestStatus.FINISHED_ABORTED)
        elif action == "preempt" and watched.scheduler.running:
            watched.scheduler._preempt_request(watched.scheduler.running.pop(), 0.0)
        elif action == "reset":
            watched.scheduler.reset_prefix_cache()
        watched.now += draw.choice([0.1, 1.0, 700.0])
        before = check(watched, serial, before)


class Totals(dict[str, int]):
    """Sums over all tenants."""


def check(watched: Tenants, sent: int, before: Totals) -> Totals:
    """The books against the scheduler: exact shares, everybody somewhere, nothing forgotten."""
    for _ in range(2):  # a slice may end in the middle of a pass on a slow machine
        seen = rows(watched)
        if not watched.observer._walk.under_way:
            break
    exact: dict[str, Fraction] = {}
    for request_id, living in watched.observer._living.items():
        table = watched.observer._view.managers[0].req_to_blocks.get(request_id) or ()
        exact[living.tenant.name] = exact.get(living.tenant.name, Fraction()) + sum(
            (Fraction(1, block.ref_cnt) for block in table), Fraction()
        )
    assert sum(exact.values()) == held(watched)
    assert {name: row.held for name, row in seen.items()} == pytest.approx({n: float(exact.get(n, 0)) for n in seen})
    totals = Totals(
        requests=sum(row.requests_total for row in seen.values()),
        prompt=sum(row.prompt_tokens_total for row in seen.values()),
        generated=sum(row.generated_tokens_total for row in seen.values()),
        ended=sum(sum(row.ended_total.values()) for row in seen.values()),
        turns=sum(sum(row.session_idle_seconds.counts) for row in seen.values()),
        over=sum(sum(row.session_lifetime_seconds.counts) for row in seen.values()),
    )
    assert totals["requests"] == sent
    assert totals["ended"] == sent - len(watched.scheduler.requests)
    assert all(totals[name] >= before.get(name, 0) for name in totals)
    assert all(min(row.running, row.waiting, row.sessions, row.references) >= 0 for row in seen.values())
    known = watched.observer.sessions
    assert sum(row.sessions for row in seen.values()) == len(known._live) + len(known._idle)
    return totals


def test_a_walk_in_slices_comes_to_the_same_and_says_how_old_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(20_000, tokens=100_000)
    for i in range(60):
        watched.scheduler.add_request(make(i, f"t{i % 2}", ntok=1600, shared_prefix=800, max_tokens=500))
    step(watched.scheduler)
    monkeypatch.setattr(tenants, "SLICE_SECONDS", 0.0)  # one stretch per call
    first = rows(watched)
    assert {row.held for row in first.values()} == {None}
    assert all(row.references > 0 for row in first.values())
    looks = 1
    while rows(watched)["t0"].held is None:
        looks += 1
    assert looks >= 60 * 100 // shares._CHUNK
    watched.now += 3.0
    seen = rows(watched)
    assert seen["t0"].held_age_seconds == 3.0
    assert sum(row.held for row in seen.values()) == pytest.approx(held(watched))


def test_a_tenant_that_comes_in_the_middle_of_a_walk_is_not_yet_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch(20_000, tokens=100_000)
    for i in range(60):
        watched.scheduler.add_request(make(i, "acme", ntok=1600, max_tokens=500))
    step(watched.scheduler)
    monkeypatch.setattr(tenants, "SLICE_SECONDS", 0.0)
    rows(watched)
    watched.scheduler.add_request(make(99, "late", ntok=1600))
    step(watched.scheduler)
    while (seen := rows(watched))["acme"].held is None:
        pass
    assert seen["late"].held is None
    monkeypatch.setattr(tenants, "SLICE_SECONDS", 10.0)
    assert rows(watched)["late"].held == 100
