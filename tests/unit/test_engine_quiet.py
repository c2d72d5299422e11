"""What looks like a leak or like pressure on an engine and is neither, each with its twin that is: by real signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent.policy.types import TEXTBOOK
from agent.state import AgentState, EngineState
from engine_hooks.detail import Detail
from tests.unit.details import make_allocation, make_delayed, make_detail, make_leak, make_waiting, make_work
from tests.unit.timeline import UNIX, engine, page, pool, state, times, watch

MINE = {
    "config_mismatch",
    "engine_missing",
    "eviction_storm",
    "kv_delayed_free",
    "kv_orphan",
    "kv_over_freed",
    "kv_pinned",
    "kv_pressure",
    "kv_stall",
    "preemption_thrash",
    "restart_loop",
    "sleep_residue",
    "spec_residue",
    "tenant_surge",
    "workload_shift",
}
HOUR = 3600.0


def told(t: float, **sections: Any) -> Detail:
    """A detail of an engine that serves 1,000 tokens of prompts a second and makes others wait for nothing."""
    calm = {
        "allocation": make_allocation(
            preempted_total=0,
            refused_total=0,
            consecutive_refusals=0,
            most_retries=0,
            waiting_refused=0,
            oldest_refused_seconds=None,
            blocks_taken_total=int(70 * t),
        ),
        "work": make_work(
            prefill_tokens_total=int(1000 * t),
            scheduled_tokens_total=int(1500 * t),
            rebuilt_preempted_total=0,
            rebuilt_evicted_total=0,
        ),
        "waiting": make_waiting(reasons={}, idle_steps=0, stalled_seconds=None, stalled_by=""),
    }
    none = dict.fromkeys(("leaks", "delayed", "pins", "pools", "tenants", "tiers"), ())
    return make_detail(**{"speculation": None, "encoder": None} | none | calm | sections)


def hooked(t: float, held: float, *, running: int = 8, waiting: int = 0, **parts: Any) -> EngineState:
    """Engine m with so much of its 1,000 blocks held."""
    more = {name: parts.pop(name) for name in ("orphaned", "cached_idle", "delayed", "capacity") if name in parts}
    blocks = round(held * more.get("capacity", 1000))
    idle = more.pop("cached_idle", min(100, more.get("capacity", 1000) - blocks))
    values = {"pool": pool(held=blocks, cached_idle=idle, **more), "running": running, "waiting": waiting}
    values |= {"detail": told(t), "steps": int(20 * t)}
    return engine(**values | parts)


def kinds(states: Iterator[AgentState], pages: bool = False) -> set[str]:
    """The kinds of these that were confirmed and that somebody is told of."""
    seen = watch(states)
    return (seen.pages() if pages else seen.kinds()) & MINE


def run(level: Callable[[float], float], seconds: float, period: float = 1.0, **parts: Any) -> set[str]:
    """What an engine with hooks is told of while ``level`` of its pool is held."""
    return kinds(state(t, engines=(hooked(t, level(t), **parts),)) for t in times(seconds, period))


def on_a_page(
    level: Callable[[float], float], running: Callable[[float], int], seconds: float, period: float
) -> set[str]:
    """The same of one without hooks."""

    def states() -> Iterator[AgentState]:
        for t in times(seconds, period):
            tokens = {"generation_tokens": int(400 * t), "prompt_tokens": int(900 * t)}
            yield state(t, pages=[page(usage_ratio=level(t), running=running(t), **tokens)])

    return kinds(states())


# -- start, load --------------------------------------------------------------------------------------------


def test_a_start_with_its_warm_up_and_the_first_ramp() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(600):
            if t < 60:
                yield state(t)
            elif t < 90:
                yield state(t, engines=(hooked(t, 0.0, running=0, cached_idle=0, started_at=UNIX + 55),))
            else:
                level = min(0.93, 0.02 * (t - 90))
                yield state(t, engines=(hooked(t, level, running=int(60 * level), started_at=UNIX + 55),))

    assert kinds(states()) == set()


@pytest.mark.parametrize("minutes", [0.5, 2.0, 8.0])
def test_a_ramp_of_far_more_than_eight_per_cent_a_minute(minutes: float) -> None:
    def level(t: float) -> float:
        return 0.05 + 0.88 * min(1.0, max(0.0, (t - 300) / (60 * minutes)))

    def running(t: float) -> int:
        return int(60 * level(t))

    admitted = (state(t, engines=(hooked(t, level(t), running=running(t)),)) for t in times(1200, 2.0))
    assert kinds(admitted) == set()
    assert on_a_page(level, running, 1200, 5.0) == set()


def test_its_twin_a_pool_that_eight_running_requests_fill() -> None:
    def level(t: float) -> float:
        return min(0.999, 0.60 + 0.00117 * t)

    assert run(level, 400) == {"kv_pressure"}
    assert on_a_page(level, lambda _: 16, 400, 2.0) == {"kv_pressure"}


def test_a_full_pool_for_an_hour_is_what_throughput_is() -> None:
    assert run(lambda t: 0.96 + 0.01 * math.sin(t / 40), HOUR, 2.0) == set()


def test_one_long_document() -> None:
    """70 % of the pool is one request's, for ten minutes, while another waits for a place for some seconds."""

    def level(t: float) -> float:
        return 0.2 + (0.5 + 0.0002 * (t - 300) if 300 <= t < 900 else 0.0)

    def states() -> Iterator[AgentState]:
        for t in times(1200):
            waits = 300 <= t < 330
            row = make_waiting(
                reasons={"memory": 1} if waits else {}, stalled_seconds=None, stalled_by="", idle_steps=0
            )
            yield state(t, engines=(hooked(t, level(t), waiting=int(waits), detail=told(t, waiting=row)),))

    assert kinds(states()) == set()


def test_long_sessions_and_growth_in_step_with_what_is_generated() -> None:
    assert run(lambda t: 0.1 + 0.7 * (t % 1800) / 1800, 2 * HOUR, 5.0) == set()
    # kv-12: one answer of some 148 tokens a second; 19 to 65 % in 40 s at 1.92 % a request.
    assert on_a_page(lambda t: 0.034 + 0.00011 * min(t, 600), lambda _: 1, 900, 10.0) == set()
    assert on_a_page(lambda t: 0.0192 * min(34, 10 + int(max(0, t - 600) / 1.7)), lambda t: 34, 900, 5.0) == set()


def retries(seconds: float) -> Iterator[AgentState]:
    """Clients come again for so long: the pool is full, and 150 wait for memory."""
    refused = 0
    for t in times(900):
        burst = 300 <= t < 300 + seconds
        refused += 12 * burst
        row = make_allocation(
            preempted_total=0,
            refused_total=refused,
            consecutive_refusals=3 * burst,
            most_retries=0,
            waiting_refused=20 * burst,
            oldest_refused_seconds=2.0 if burst else None,
        )
        why = make_waiting(reasons={"memory": 150} if burst else {}, stalled_seconds=None, stalled_by="", idle_steps=0)
        detail = told(t, allocation=row, waiting=why)
        yield state(t, engines=(hooked(t, 0.97 if burst else 0.6, waiting=150 * burst, detail=detail),))


def test_a_burst_of_retries_and_its_twin_that_does_not_end() -> None:
    assert kinds(retries(40)) == set()
    assert kinds(retries(400)) == {"kv_pressure"}


def test_concave_growth_to_a_plateau_and_cached_blocks() -> None:
    assert run(lambda t: 0.7 * (1 - math.exp(-t / 1200)), 3 * HOUR, 5.0) == set()
    cached = (state(t, engines=(hooked(t, 0.1, cached_idle=int(min(900, t / 2))),)) for t in times(2400, 5.0))
    assert kinds(cached) == set()
    assert on_a_page(lambda t: 0.5 * (1 - math.exp(-t / 900)), lambda t: 40, 4 * HOUR, 15.0) == set()


# -- what is kept and what is lost --------------------------------------------------------------------------


def delayed(t: float, lease: float | None, share: float) -> EngineState:
    """A steady stream whose blocks a peer fetches late: it levels off when the first lease ends."""
    span = min(t, 480.0) if lease else t
    blocks = round(1000 * share * span / 480)
    row = make_delayed(blocks=blocks, requests=4, oldest_seconds=span, lease_seconds=lease, expired=0, tenants={})
    return hooked(t, 0.2 + blocks / 1000, delayed=blocks, detail=told(t, delayed=(row,) if blocks else ()))


def test_bounded_retention_and_its_twin_without_a_lease() -> None:
    assert kinds(state(t, engines=(delayed(t, 480.0, 0.5),)) for t in times(1500)) == set()
    assert "kv_delayed_free" in kinds(state(t, engines=(delayed(t, None, 0.1),)) for t in times(1500))


def test_a_mass_abort_and_its_twin_that_leaves_blocks() -> None:
    def states(left: int) -> Iterator[AgentState]:
        for t in times(600):
            after = t >= 200
            leaks = (make_leak(blocks=left),) if after and left else ()
            held = 0.9 if not after else left / 1000
            running = 0 if after else 106
            yield state(
                t,
                engines=(
                    hooked(t, held, running=running, orphaned=left * after, detail=told(min(t, 200), leaks=leaks)),
                ),
            )

    assert kinds(states(0)) == set()
    assert kinds(states(30)) == {"kv_orphan"}


def test_a_restart_and_a_pool_of_another_size() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(900):
            if t < 300:
                yield state(t, engines=(hooked(t, 0.6),))
            elif t < 345:
                yield state(t)
            else:
                new = {"instance": "new", "started_at": UNIX + 340, "capacity": 2000}
                yield state(t, engines=(hooked(t - 340, min(0.8, 0.01 * (t - 345)), **new),))

    assert kinds(states()) == set()


def test_a_page_that_is_frozen_vanishes_or_is_renamed_is_no_leak() -> None:
    def states(**later: Any) -> Iterator[AgentState]:
        for t in times(1200, 5.0):
            now = {"usage_ratio": 0.9, "running": 106, "generation_tokens": int(900 * min(t, 300))}
            yield state(t, pages=[page(**now | (later if t > 300 else {}))])

    nothing = {"usage_ratio": None, "held_blocks": None, "running": None, "waiting": None, "generation_tokens": None}
    nothing |= {"prompt_tokens": None, "preemptions": None}
    assert kinds(states(**nothing, phase="stale", reason="nothing has changed")) == set()
    assert kinds(states(**nothing)) == set()
    assert kinds(states(usage_ratio=None, held_blocks=None, generation_tokens=None, prompt_tokens=None)) == set()


def test_an_engine_without_hooks_at_rest_and_its_twin_that_keeps_blocks() -> None:
    def level(left: float) -> Callable[[float], float]:
        return lambda t: 0.4 if t < 600 else left

    def running(t: float) -> int:
        return 12 if t < 600 else 0

    def states(left: float) -> Iterator[AgentState]:
        for t in times(2400, 5.0):
            tokens = {"generation_tokens": int(400 * min(t, 600)), "prompt_tokens": int(900 * min(t, 600))}
            yield state(t, pages=[page(usage_ratio=level(left)(t), running=running(t), **tokens)])

    assert kinds(states(0.0)) == set()
    assert kinds(states(0.07)) == {"kv_orphan"}


def test_seven_per_cent_that_are_preempted_once_and_end_well_get_nobody_up() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 2.0):
            row = make_allocation(
                preempted_total=int(0.43 * t), refused_total=int(0.44 * t), consecutive_refusals=0, waiting_refused=0
            )
            work = make_work(
                prefill_tokens_total=int(4000 * t), rebuilt_preempted_total=int(280 * t), rebuilt_evicted_total=0
            )
            yield state(t, engines=(hooked(t, 0.93, running=40, detail=told(t, allocation=row, work=work)),))

    assert kinds(states(), pages=True) == set()


def test_the_textbook_profile_judges_the_same_numbers_without_asking_for_harm() -> None:
    full = watch((state(t, engines=(hooked(t, 0.97),)) for t in times(120)), TEXTBOOK)
    assert full.pages() == {"kv_pressure"}
    assert full.at("kv_pressure") <= 15
