"""Tenants and sessions on vLLM's real scheduler: exact shares, totals that never fall, bounds, and how sessions end."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.lora.request import LoRARequest
from vllm.v1.request import Request, RequestStatus, StreamingUpdate

from engine_hooks.core import marks, sessions, shares, tenants
from engine_hooks.core.marks import MARKS_KEY, TOKEN_VARIABLE, Marks, front_marks, marks_of
from engine_hooks.core.tenants import MAX_TENANTS, TenantObserver
from engine_hooks.detail import OTHER, TenantRow
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.names import short_hash
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.observing import Watched

Tenants = Watched[TenantObserver]


def watch(num_blocks: int = 2000, env: dict[str, str] | None = None, **scheduler: Any) -> Tenants:
    return Watched(make_scheduler(num_blocks, **scheduler), TenantObserver, env)


def make(i: int, tenant: str = "", session: str = "", ntok: int = 100, **kwargs: Any) -> Request:
    request = make_request(i, ntok, **kwargs)
    if tenant or session:
        request.sampling_params.extra_args = {MARKS_KEY: front_marks(tenant, session)}
    return request


def rows(watched: Tenants) -> dict[str, TenantRow]:
    found = watched.look()
    assert len(found) == len({row.tenant for row in found}) <= MAX_TENANTS + 1
    return {row.tenant: row for row in found}


def abort(watched: Tenants, *numbers: int) -> None:
    watched.scheduler.finish_requests([f"r{i}" for i in numbers], RequestStatus.FINISHED_ABORTED)


def held(watched: Tenants) -> int:
    return sum(block.ref_cnt > 0 for block in watched.pool.blocks if not block.is_null)


# -- counters ---------------------------------------------------------------------------------------------------


def test_nobody_at_start() -> None:
    assert watch().look() == ()


def test_counts_of_two_tenants() -> None:
    watched = watch()
    for i in range(3):
        watched.scheduler.add_request(make(i, "acme", max_tokens=5))
    watched.scheduler.add_request(make(3, "umbrella", ntok=40, max_tokens=500))
    assert {name: (row.running, row.waiting) for name, row in rows(watched).items()} == {
        "acme": (0, 3),
        "umbrella": (0, 1),
    }
    step(watched.scheduler)
    seen = rows(watched)
    assert (seen["acme"].running, seen["acme"].waiting, seen["acme"].generated_tokens_total) == (3, 0, 3)
    assert (seen["acme"].prompt_tokens_total, seen["umbrella"].prompt_tokens_total) == (300, 40)
    assert seen["acme"].references == sum(
        len(watched.observer._view.managers[0].req_to_blocks[f"r{i}"]) for i in range(3)
    )
    while any(f"r{i}" in watched.scheduler.requests for i in range(3)):
        step(watched.scheduler)
    seen = rows(watched)
    acme = seen["acme"]
    assert (acme.running, acme.waiting, acme.held, acme.references) == (0, 0, 0.0, 0)
    assert (acme.requests_total, acme.generated_tokens_total, acme.ended_total) == (3, 15, {"finished": 3})
    assert (seen["umbrella"].running, seen["umbrella"].ended_total) == (1, {})
    abort(watched, 3)
    assert rows(watched)["umbrella"].ended_total == {"aborted_front_end": 1}
    assert not watched.observer._living


def test_a_request_that_is_aborted_before_admission_has_ended_too() -> None:
    watched = watch(max_num_seqs=1)
    for i in range(2):
        watched.scheduler.add_request(make(i, "acme", "talk"))
    step(watched.scheduler)
    abort(watched, 1)
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.requests_total, acme.ended_total) == (1, 0, 2, {"aborted_front_end": 1})
    (turn,) = watched.observer.sessions.turns("acme", "talk")
    assert (turn.tokens, turn.blocks) == (100, 0)
    abort(watched, 1)  # the second of the two messages that vLLM handles for each abort
    assert rows(watched)["acme"].ended_total == {"aborted_front_end": 1}


def finish(ids: Any, status: RequestStatus = RequestStatus.FINISHED_ABORTED, **params: Any) -> dict[str, int]:
    """How a request that runs is counted once it was ended from outside by ``ids``."""
    watched = watch()
    request = make(0, "acme")
    for name, value in params.items():
        setattr(request.sampling_params, name, value)
    watched.scheduler.add_request(request)
    step(watched.scheduler)
    watched.scheduler.finish_requests(ids, status)
    return rows(watched)["acme"].ended_total


def test_who_ended_a_request_is_told_apart() -> None:
    assert finish(["r0"]) == {"aborted_front_end": 1}
    assert finish(["r0"], stop=["x"]) == {"stop_or_abort": 1}  # vLLM's front end aborts at a stop string that it finds
    assert finish(None) == {"aborted_engine": 1}
    assert finish("r0") == {"finished": 1}  # a streamed input that was closed
    assert finish({"r0"}, RequestStatus.FINISHED_ERROR) == {"error": 1}


def test_preemptions_are_counted_and_the_request_lives_on() -> None:
    watched = watch(num_blocks=40)
    for i in range(6):
        watched.scheduler.add_request(make(i, "acme", ntok=60, max_tokens=200))
    for _ in range(150):
        step(watched.scheduler)
    acme = rows(watched)["acme"]
    preempted = sum(request.num_preemptions for request in watched.scheduler.requests.values())
    assert acme.preempted_total >= preempted > 0
    assert acme.running + acme.waiting == len(watched.scheduler.requests)
    assert acme.generated_tokens_total >= sum(r.num_output_tokens for r in watched.scheduler.requests.values())


def test_requests_whose_blocks_were_kept_are_forgotten_although_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an agent there is no section: an engine that only prefills must not remember every request."""
    watched = watch()
    monkeypatch.setattr(watched.scheduler, "_connector_finished", lambda request: (True, None))
    for i in range(20):
        watched.scheduler.add_request(make(i, "acme"))
        step(watched.scheduler)
        abort(watched, i)
        assert len(watched.observer._living) == 1
        watched.scheduler._free_blocks(watched.scheduler.requests[f"r{i}"])
    assert not watched.observer._living
    assert not watched.observer._ran
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.requests_total, acme.generated_tokens_total) == (0, 0, 20, 20)


def test_tokens_of_a_request_that_ran_only_between_two_looks_are_counted() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme"))
    watched.look()
    step(watched.scheduler)
    watched.scheduler._preempt_request(watched.scheduler.running.pop(), 0.0)
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.generated_tokens_total) == (0, 1, 1)
    assert rows(watched)["acme"].generated_tokens_total == 1


def test_a_finished_request_whose_blocks_are_kept_still_counts_as_a_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme"))
    step(watched.scheduler)
    monkeypatch.setattr(watched.scheduler, "_connector_finished", lambda request: (True, None))
    abort(watched, 0)
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.ended_total) == (0, 0, {"aborted_front_end": 1})
    assert acme.held == acme.references == held(watched) > 0
    watched.scheduler._free_blocks(watched.scheduler.requests["r0"])
    acme = rows(watched)["acme"]
    assert (acme.held, acme.references, acme.ended_total) == (0.0, 0, {"aborted_front_end": 1})
    assert not watched.observer._living


def test_the_next_piece_of_a_streamed_input_is_no_new_request() -> None:
    watched = watch()
    first = make(0, "acme", ntok=20, max_tokens=3)
    first.resumable = True
    watched.scheduler.add_request(first)
    for _ in range(4):
        step(watched.scheduler)
    assert first.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    before = rows(watched)["acme"]
    piece = make(0, "acme", ntok=20, max_tokens=3)
    piece.resumable = True
    assert StreamingUpdate.from_request(piece) is not None
    watched.scheduler.add_request(piece)
    for _ in range(4):
        step(watched.scheduler)
    after = rows(watched)["acme"]
    assert (before.requests_total, after.requests_total) == (1, 1)
    assert (before.generated_tokens_total, after.generated_tokens_total) == (3, 6)
    assert (before.prompt_tokens_total, after.prompt_tokens_total) == (20, 40)


ACTIONS = ["add", "add", "step", "step", "abort", "reset", "preempt"]


# -- shares -----------------------------------------------------------------------------------------------------


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


# -- bounds -----------------------------------------------------------------------------------------------------


def fill_places(watched: Tenants, *, finish: bool = True) -> None:
    for i in range(MAX_TENANTS):
        watched.scheduler.add_request(make(i, f"t{i}", f"s{i}", max_tokens=1 if finish else 500))
        step(watched.scheduler)


def test_those_beyond_the_bound_are_counted_in_other() -> None:
    watched = watch()
    fill_places(watched, finish=False)
    assert OTHER not in rows(watched)
    for i in range(MAX_TENANTS, MAX_TENANTS + 5):
        watched.scheduler.add_request(make(i, f"t{i}"))
    step(watched.scheduler)
    other = rows(watched)[OTHER]
    assert (other.running, other.requests_total) == (5, 5)
    assert other.held > 0


def test_a_tenant_that_was_long_away_makes_room_and_its_counts_stay_in_the_sum() -> None:
    watched = watch()
    fill_places(watched)
    watched.scheduler.add_request(make(900, "early"))
    assert "early" not in rows(watched), "nobody has been away for long enough"
    watched.now += tenants.FOLD_SECONDS
    watched.scheduler.add_request(make(901, "late"))
    seen = rows(watched)
    assert "late" in seen
    assert "t0" not in seen
    assert seen[OTHER].requests_total == 2
    assert seen[OTHER].ended_total == {"finished": 1}
    assert sum(row.requests_total for row in seen.values()) == MAX_TENANTS + 2


def test_a_session_outlives_the_row_of_its_tenant() -> None:
    """Its first request is counted in ``other``, its second under a row that is given up before the first one ends."""
    watched = watch()
    fill_places(watched)
    watched.scheduler.add_request(make(900, "acme", "talk", max_tokens=2000))
    watched.now += tenants.FOLD_SECONDS
    watched.scheduler.add_request(make(901, "acme", "talk", max_tokens=1))
    step(watched.scheduler)
    assert rows(watched)["acme"].sessions == 1
    for i in range(MAX_TENANTS):  # all others come back; acme is the only one that was away
        watched.scheduler.add_request(make(1000 + i, f"u{i}", max_tokens=2000))
    watched.now += tenants.FOLD_SECONDS
    watched.scheduler.add_request(make(1100, "late"))
    seen = rows(watched)
    assert "acme" not in seen
    assert (seen[OTHER].sessions, seen["late"].requests_total) == (1, 1)
    abort(watched, 900)
    watched.now += sessions.OVER_SECONDS
    assert rows(watched)[OTHER].sessions == 0


def test_a_tenant_of_the_map_has_its_place_and_its_quota_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    file.write_text(json.dumps({"gold": {"quota_ratio": 0.25}, "silver": {"quota_blocks": 7}}))
    watched = watch(env={"KVTIDE_TENANT_MAP": str(file)})
    fill_places(watched)
    for i, name in enumerate(["stranger", "gold", "silver"]):
        watched.scheduler.add_request(make(900 + i, name))
    seen = rows(watched)
    assert "stranger" not in seen
    assert {name: row.quota_blocks for name, row in seen.items() if row.quota_blocks is not None} == {
        "gold": 1999 // 4,
        "silver": 7,
    }


def test_other_and_none_are_nobodys_names() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0))
    watched.scheduler.add_request(make(1, OTHER))
    assert {name: row.requests_total for name, row in rows(watched).items()} == {"none": 1, OTHER: 1}


# -- sessions ---------------------------------------------------------------------------------------------------


def talk(watched: Tenants, number: int, seconds: float, tenant: str = "acme", session: str = "talk") -> None:
    """One turn that lasts ``seconds``."""
    watched.scheduler.add_request(make(number, tenant, session, max_tokens=2))
    step(watched.scheduler)
    watched.now += seconds
    step(watched.scheduler)
    assert f"r{number}" not in watched.scheduler.requests


def test_turns_rests_and_lifetimes() -> None:
    watched = watch()
    for number, rest in enumerate([20.0, 200.0, 0.0]):
        talk(watched, number, 3.0)
        watched.now += rest
    acme = rows(watched)["acme"]
    assert (acme.sessions, acme.requests_total) == (1, 3)
    assert acme.session_idle_seconds.sum == 220.0
    assert sum(acme.session_idle_seconds.counts) == 2
    assert sum(acme.session_lifetime_seconds.counts) == 0
    turns = watched.observer.sessions.turns("acme", "talk")
    assert [(turn.start, turn.tokens, turn.request) for turn in turns] == [
        (23.0, 102, short_hash("r1")),
        (226.0, 102, short_hash("r2")),
    ]
    assert all(turn.blocks == 7 for turn in turns)
    watched.now += sessions.OVER_SECONDS
    acme = rows(watched)["acme"]
    assert acme.sessions == 0
    assert (sum(acme.session_lifetime_seconds.counts), acme.session_lifetime_seconds.sum) == (1, 229.0)
    assert watched.observer.sessions.turns("acme", "talk") == ()


def test_a_session_with_a_request_is_never_over() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme", "talk", max_tokens=500))
    watched.now += 10 * sessions.OVER_SECONDS
    assert rows(watched)["acme"].sessions == 1
    watched.scheduler.add_request(make(1, "acme", "talk", max_tokens=500))  # a second one beside it is no rest
    abort(watched, 0)
    watched.now += 10 * sessions.OVER_SECONDS
    acme = rows(watched)["acme"]
    assert (acme.sessions, sum(acme.session_idle_seconds.counts)) == (1, 0)


def test_the_same_session_name_of_two_tenants_is_two_sessions() -> None:
    watched = watch()
    talk(watched, 0, 1.0, "acme")
    talk(watched, 1, 1.0, "umbrella")
    assert {name: row.sessions for name, row in rows(watched).items()} == {"acme": 1, "umbrella": 1}


def test_sessions_are_bounded_and_the_longest_at_rest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_IDLE", 3)
    watched = watch()
    for number in range(5):
        talk(watched, number, 1.0, session=f"s{number}")
    acme = rows(watched)["acme"]
    assert (acme.sessions, sum(acme.session_lifetime_seconds.counts)) == (3, 2)
    assert [bool(watched.observer.sessions.turns("acme", f"s{n}")) for n in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


# -- marks ------------------------------------------------------------------------------------------------------


def test_marks_without_the_engines_token_are_a_clients_and_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    request = make(0, "acme", "talk")
    assert marks_of(request) == Marks("acme", "talk")
    for forged in ({"tenant": "acme", "session": "talk"}, {"tenant": "acme", "token": "guess"}, "acme", ["acme"], None):
        request.sampling_params.extra_args = {MARKS_KEY: forged}
        assert marks_of(request) == Marks()


def test_without_a_front_end_the_request_itself_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    request = make(0)
    request.cache_salt = "pepper"
    request.session_id = "talk"
    assert marks_of(request) == Marks(f"salt-{short_hash('pepper')}", "talk")
    request.lora_request = LoRARequest("tuned", 1, "/nowhere")
    monkeypatch.setattr(marks, "_settings", TenantSettings(sources=("lora", "cache_salt")))
    assert marks_of(request).tenant == "tuned"
    monkeypatch.setattr(marks, "_settings", TenantSettings(sources=("user",)))
    assert marks_of(request).tenant == "none"


def test_a_session_of_the_request_is_kept_beside_a_tenant_of_the_front_end() -> None:
    request = make(0, "acme")
    request.session_id = "talk"
    assert marks_of(request) == Marks("acme", "talk")
