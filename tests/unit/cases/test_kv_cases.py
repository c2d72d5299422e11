"""Reports on the KV pool, from engines with and without hooks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent.state import AgentState
from tests.unit.details import (
    make_allocation,
    make_delayed,
    make_detail,
    make_group,
    make_pool_row,
    make_waiting,
    make_work,
)
from tests.unit.timeline import engine, page, pool, state, times, watch

QUIET_DETAIL = {
    "leaks": (),
    "delayed": (),
    "pins": (),
    "pools": (),
    "tenants": (),
    "speculation": None,
    "encoder": None,
    "tiers": (),
    "allocation": None,
    "work": None,
    "waiting": make_waiting(reasons={}, idle_steps=0, stalled_seconds=None, stalled_by=""),
}


def test_kv_01_blocks_of_an_aborted_remote_load_wait_for_ever() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1500, 5):
            aborts = 1 + int(t // 300)
            row = make_delayed(
                direction="receive",
                requests=aborts,
                blocks=20 * aborts,
                oldest_seconds=t,
                lease_seconds=None,
                expired=0,
                tenants={},
            )
            detail = make_detail(**QUIET_DETAIL | {"delayed": (row,)})
            held = pool(held=20 * aborts, delayed=20 * aborts, cached_idle=0)
            yield state(t, engines=(engine(pool=held, detail=detail, running=0, steps=1000 + int(t)),))

    verdict = (seen := watch(states())).of("kv_delayed_free")
    assert verdict.phase == "confirmed"
    assert seen.at("kv_delayed_free") > 600
    assert "kept for" in verdict.sentence
    assert "no lease ends that" in verdict.sentence
    assert "frees none" in verdict.remedy
    assert "kv_orphan" not in seen.kinds()


@pytest.mark.parametrize("waiting", [4, 2])
def test_kv_05_and_kv_06_blocks_stay_while_nothing_runs_and_nobody_is_admitted(waiting: int) -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1200, 2):
            if t < 300:
                tokens = int(80 * t)
                yield state(t, pages=[page(usage_ratio=0.4, generation_tokens=tokens, prompt_tokens=tokens)])
            else:
                stuck = page(
                    usage_ratio=0.97, running=0, waiting=waiting, generation_tokens=24_000, prompt_tokens=24_000
                )
                yield state(t, pages=[stuck])

    seen = watch(states())
    assert "kv_stall" in seen.pages()
    assert seen.at("kv_stall") < 360
    assert f"{waiting} waiting" in seen.of("kv_stall").sentence
    assert "restart" in seen.of("kv_stall").remedy.lower()


def test_kv_07_use_climbed_with_errors_and_stayed_for_six_hours() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(6 * 3600, 10):
            level = min(0.99, 0.09 * int(t / 60)) if t < 900 else 0.99
            yield state(
                t,
                pages=[page(usage_ratio=level, running=0, waiting=0, generation_tokens=5000, prompt_tokens=50_000)],
            )

    seen = watch(states())
    verdict = seen.of("kv_orphan")
    assert verdict.phase == "confirmed"
    assert seen.at("kv_orphan") < 3600
    assert "restart" in verdict.remedy.lower()
    assert "99%" in verdict.sentence


@pytest.mark.parametrize("running", [5, 1])
def test_kv_09_and_kv_10_a_full_pool_that_generates_nothing_is_a_stall_and_no_leak(running: int) -> None:
    def states() -> Iterator[AgentState]:
        for t in times(600):
            busy = min(t, 120)
            use = min(1.0, 0.5 + busy / 240)
            yield state(
                t,
                pages=[page(usage_ratio=use, running=running, waiting=3, generation_tokens=int(100 * busy))],
            )

    seen = watch(states())
    assert "kv_stall" in seen.pages()
    assert seen.at("kv_stall") < 200
    assert "kv_orphan" not in seen.kinds()


def test_kv_11_a_pool_that_fills_in_seconds_is_seen_in_seconds() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(180):
            use = 0.45 if t < 150 else min(1.0, 0.45 + 0.0246 * (t - 150))
            yield state(
                t, pages=[page(usage_ratio=use, running=2, waiting=98 if t > 150 else 0, generation_tokens=int(80 * t))]
            )

    seen = watch(states())
    assert "kv_pressure" in seen.kinds()
    assert 150 < seen.at("kv_pressure") <= 175


def test_kv_12_one_long_answer_grows_slowly_and_is_no_leak() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(900):
            speed = max(110.0, 148.5 - 0.11 * t)
            use = 0.034 + 8.5e-7 * speed * t
            yield state(
                t,
                pages=[
                    page(
                        usage_ratio=use,
                        capacity_blocks=6000,
                        running=1,
                        prompt_tokens=2000,
                        generation_tokens=int(speed * t),
                    )
                ],
            )

    assert watch(states()).kinds() == set()


def test_kv_14_a_nearly_full_pool_that_will_be_full_in_45_s_is_told_before() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(300):
            use = 0.60 + 0.00117 * t
            yield state(
                t, pages=[page(usage_ratio=use, running=16, generation_tokens=int(16.7 * 16 * t), capacity_blocks=3000)]
            )

    seen = watch(states())
    assert "kv_pressure" in seen.kinds()
    full = (1 - 0.60) / 0.00117
    assert seen.at("kv_pressure") < full - 45


@pytest.mark.parametrize(("minutes", "reason"), [(9, "capacity"), (60, "capacity")])
def test_kv_25_and_kv_26_an_empty_pool_that_admits_nobody_is_a_stall_that_eviction_cannot_help(
    minutes: int, reason: str
) -> None:
    def states() -> Iterator[AgentState]:
        for t in times(minutes * 60, 2):
            yield state(t, pages=[page(usage_ratio=0.0, running=0, waiting=6, generation_tokens=5000)])

    seen = watch(states())
    assert seen.pages() == {"kv_stall"}
    verdict = seen.of("kv_stall")
    assert "6 waiting" in verdict.sentence
    told = f"{verdict.sentence} {verdict.remedy}".lower()
    assert "evict" in told  # it says that there is nothing to evict
    assert reason


def test_kv_27_a_limit_on_requests_that_no_empty_pool_can_keep() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(300):
            detail = make_detail(**QUIET_DETAIL | {"groups": (make_group(),)})
            small = pool(capacity=4790, held=0, cached_idle=0, block_tokens=16, longest_tokens=262_144)
            yield state(t, engines=(engine(pool=small, detail=detail, running=0, waiting=1),))

    verdict = watch(states()).of("config_mismatch")
    assert "262,144 tokens long" in verdict.sentence
    assert "room for 76,640" in verdict.sentence
    assert "Evicting does not help" in verdict.remedy


def test_kv_28_parked_requests_hold_the_blocks_that_others_wait_for() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(120):
            stuck = make_waiting(
                reasons={"remote_kv": 3, "capacity": 4},
                idle_steps=int(10 * t),
                stalled_seconds=t,
                stalled_by="remote_kv",
            )
            detail = make_detail(**QUIET_DETAIL | {"waiting": stuck})
            yield state(t, engines=(engine(pool=pool(held=950, cached_idle=0), detail=detail, running=0, waiting=7),))

    seen = watch(states())
    assert "kv_stall" in seen.pages()
    assert "kv_orphan" not in seen.kinds()
    assert "7 waiting" in seen.of("kv_stall").sentence


def test_kv_29_prefill_again_and_again_without_a_token() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(900):
            use = 0.989 * (t % 60) / 60
            yield state(
                t,
                pages=[page(usage_ratio=use, running=1, waiting=1, prompt_tokens=int(500 * t), generation_tokens=700)],
            )

    seen = watch(states())
    assert seen.kinds() & {"kv_stall", "preemption_thrash"}
    assert "kv_orphan" not in seen.kinds()


def test_kv_30_everybody_is_preempted_and_nobody_gets_a_token() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1200):
            working = min(t, 780)
            stuck = max(0.0, t - 780)
            detail = make_detail(
                **QUIET_DETAIL
                | {
                    "allocation": make_allocation(
                        preempted_total=int(0.01 * working + 8 * stuck),
                        refused_total=int(0.02 * working + 20 * stuck),
                        consecutive_refusals=int(20 * stuck),
                        waiting_refused=9 if stuck else 0,
                        oldest_refused_seconds=stuck or None,
                    ),
                    "work": make_work(
                        prefill_tokens_total=int(900 * working + 900 * stuck),
                        rebuilt_preempted_total=int(10 * working + 890 * stuck),
                        rebuilt_evicted_total=0,
                        scheduled_tokens_total=int(1100 * working + 900 * stuck),
                    ),
                }
            )
            busy = engine(pool=pool(held=990, cached_idle=0), detail=detail, running=3, waiting=24, steps=int(20 * t))
            yield state(t, engines=(busy,))

    seen = watch(states())
    assert "preemption_thrash" in seen.pages()
    assert 780 < seen.at("preemption_thrash") < 900


def test_kv_31_seven_percent_preempted_that_all_complete_page_nobody() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(3600, 2):
            detail = make_detail(
                **QUIET_DETAIL
                | {
                    "allocation": make_allocation(
                        preempted_total=int(1538 * t / 3600),
                        refused_total=int(1600 * t / 3600),
                        consecutive_refusals=0,
                        most_consecutive_refusals=1,
                        most_retries=1,
                        over_three_retries_total=1 if t > 1800 else 0,
                        waiting_refused=0,
                        oldest_refused_seconds=None,
                    ),
                    "work": make_work(
                        prefill_tokens_total=int(4000 * t),
                        rebuilt_preempted_total=int(280 * t),
                        rebuilt_evicted_total=0,
                        scheduled_tokens_total=int(6000 * t),
                    ),
                }
            )
            yield state(t, engines=(engine(pool=pool(held=930), detail=detail, running=40, steps=int(20 * t)),))

    assert watch(states()).pages() == set()


def test_kv_32_a_full_pool_with_a_queue_is_pressure_and_no_leak() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1200):
            load = 1.0 if 300 < t < 900 else 0.5
            yield state(
                t,
                pages=[
                    page(
                        usage_ratio=0.995 if load == 1.0 else 0.5 + 0.05 * (t % 30) / 30,
                        running=60,
                        waiting=120 if load == 1.0 else 0,
                        preemptions=int(max(0.0, min(t, 900) - 300) * 0.5),
                        generation_tokens=int(400 * t),
                        prompt_tokens=int(2000 * t),
                    )
                ],
            )

    seen = watch(states())
    assert "kv_pressure" in seen.kinds()
    assert "kv_orphan" not in seen.kinds()
    assert seen.last == () or all(each.phase == "resolved" for each in seen.last if each.kind == "kv_pressure")


def test_kv_19_use_that_falls_to_nothing_after_a_request_is_normal() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(900):
            busy = t % 60 < 20
            yield state(
                t,
                pages=[
                    page(
                        usage_ratio=0.05 if busy else 0.0,
                        running=int(busy),
                        generation_tokens=int(t // 60) * 2000 + int(100 * min(t % 60, 20)),
                    )
                ],
            )

    assert watch(states()).kinds() == set()


@pytest.mark.parametrize(
    ("case", "capacity", "missing", "words"),
    [("sg-03", 42308, 7064, "16.7% of the pool"), ("sg-06", 961593, 7, "under 0.1% of the pool")],
)
def test_sg_03_and_sg_06_blocks_that_are_missing_are_counted_and_sized(
    case: str, capacity: int, missing: int, words: str
) -> None:
    def states() -> Iterator[AgentState]:
        for t in times(30):
            lost = pool(capacity=capacity, held=missing, orphaned=missing, cached_idle=0)
            yield state(t, engines=(engine(pool=lost, detail=make_detail(**QUIET_DETAIL), running=0),))

    seen = watch(states())
    verdict = seen.of("kv_orphan")
    assert seen.at("kv_orphan") <= 10, case
    assert f"{missing:,} KV blocks" in verdict.sentence
    assert words in verdict.sentence


def test_sg_07_one_slot_of_one_pool_is_missing_while_the_other_balances() -> None:
    def states() -> Iterator[AgentState]:
        row = make_pool_row(pool="mamba", capacity=454, held=139, orphaned=1, over_freed=0, reason="")
        for t in times(30):
            detail = make_detail(**QUIET_DETAIL | {"pools": (row,)})
            whole = pool(capacity=396_701, held=0, cached_idle=390_685)
            yield state(t, engines=(engine(pool=whole, detail=detail, running=0),))

    verdict = watch(states()).of("kv_orphan")
    assert "1 block is held by nothing in the pool mamba" in verdict.sentence
    assert verdict.evidence == {"orphaned_blocks_beside": 1}
