"""An engine's signals over whole states: restarts, gaps, clocks, resizing; growth explained and not; harm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agent.policy.types import DEFAULT
from agent.signals.baseline import Baselines
from agent.signals.node import NodeTracker
from agent.signals.types import EngineSignals
from agent.state import AgentState
from engine_hooks.members import FrontendRow, HygieneRow
from tests.unit.builders import make_engine, make_frontend, make_pool, make_state
from tests.unit.details import make_allocation, make_delayed, make_detail, make_histogram, make_tenant, make_work
from tests.unit.node_builders import make_scraped, make_scraped_engine

Changes = Callable[[int], dict[str, Any]]
CALM: dict[str, Any] = {"waiting_refused": 0, "preempted_total": 0, "refused_total": 0}


def quiet(**changes: Any) -> dict[str, Any]:
    """What a healthy engine says besides its blocks."""
    allocation = make_allocation(**CALM | changes.pop("allocation", {}))
    detail = make_detail(waiting=None, allocation=allocation, **{"delayed": ()} | changes.pop("detail", {}))
    pool = make_pool(
        **{"capacity": 10_000, "orphaned": 0, "delayed": 0, "deferred": 0, "pinned": 0} | changes.pop("pool")
    )
    return {"engine": "m", "waiting": 0, "detail": detail, "pool": pool} | changes


def hooked(n: float, **changes: Any) -> AgentState:
    return make_state(make_engine(**quiet(**changes)), monotonic=50_000.0 + n, at=1_700_100_000.0 + n, scrape=None)


def paged(n: float, **changes: Any) -> AgentState:
    page = make_scraped_engine(**{"capacity_blocks": 10_000, "waiting": 0, "preemptions": 0} | changes)
    return make_state(monotonic=50_000.0 + n, at=1_700_100_000.0 + n, engines=(), scrape=make_scraped(page))


def play(states: list[AgentState], tracker: NodeTracker | None = None) -> list[EngineSignals]:
    tracker = tracker or NodeTracker(DEFAULT)
    return [signals.engines[0] for signals in map(tracker.take, states) if signals.engines]


def seconds(number: int, make: Changes, build: Callable[..., AgentState] = hooked, step: int = 1) -> list[AgentState]:
    return [build(n, **make(n)) for n in range(0, number, step)]


def test_growth_that_requests_explain_is_growth_and_is_not_unexplained() -> None:
    last = play(seconds(300, lambda n: {"pool": {"held": 1000 + 10 * n}}))[-1]

    assert last.growth is not None
    assert last.growth.low > 0.05
    assert last.unexplained is not None
    assert last.unexplained.per_minute == 0.0
    assert last.exhaustion is not None
    assert last.exhaustion.seconds == pytest.approx((9000 - 2990) / 10, rel=0.1)
    assert last.exhaustion.low <= last.exhaustion.seconds
    assert last.growth_above_page_seconds == 0.0


def test_a_leak_is_unexplained_growth_long_before_the_pool_grows() -> None:
    last = play(seconds(300, lambda n: {"pool": {"held": 5000, "orphaned": 4 * (n // 10)}}))[-1]

    assert last.growth is not None
    assert last.growth.low <= 0
    assert last.unexplained is not None
    assert last.unexplained.low > 0
    assert last.unexplained.per_minute == pytest.approx(0.0024, rel=0.1)


def test_delayed_frees_inside_their_lease_are_explained_and_expired_ones_are_not() -> None:
    def inside(n: int) -> dict[str, Any]:
        kept = make_delayed(blocks=10 * n, oldest_seconds=float(n), expired=0)
        return {"pool": {"held": 1000 + 10 * n, "delayed": 10 * n}, "detail": {"delayed": (kept,)}}

    def expired(n: int) -> dict[str, Any]:
        kept = make_delayed(blocks=4000, oldest_seconds=600.0 + n, expired=10 * n)
        return {"pool": {"held": 5000, "delayed": 4000}, "detail": {"delayed": (kept,)}}

    for make, sure in ((inside, False), (expired, True)):
        last = play(seconds(300, make))[-1]
        assert last.unexplained is not None
        assert (last.unexplained.low > 0) is sure


def test_a_restart_forgets_slopes_and_begins_the_grace_anew() -> None:
    states = seconds(300, lambda n: {"pool": {"held": 1000 + 10 * n}})
    states += [hooked(300 + n, pool={"held": 100}, instance="i2") for n in range(30)]
    signals = play(states)

    assert signals[299].growth is not None
    assert signals[300].growth is None
    assert not signals[-1].settled
    assert signals[-1].no_forecast == "it has just started, or its pool has just changed"
    assert signals[-1].age_seconds == 29.0


def test_an_agent_that_starts_later_knows_how_old_an_engine_is() -> None:
    signals = play([hooked(0, pool={}, started_at=1_700_100_000.0 - 3600)])

    assert signals[0].age_seconds == pytest.approx(3600)
    assert signals[0].settled


def test_a_pool_of_another_size_forgets_slopes() -> None:
    states = seconds(200, lambda n: {"pool": {"held": 1000 + 10 * n}})
    states += [hooked(200 + n, pool={"held": 3000 + 10 * n, "capacity": 20_000}) for n in range(40)]
    signals = play(states)

    assert signals[-1].growth is None
    assert signals[-1].capacity_changed_seconds == 39.0
    assert not signals[-1].settled


def test_a_gap_is_evidence_of_nothing() -> None:
    full = {"pool": {"held": 9700}}
    states = seconds(200, lambda n: full) + [hooked(320 + n, **full) for n in range(30)]
    signals = play(states)

    assert signals[199].above_page_seconds == 199.0
    assert signals[200].above_page_seconds == 0.0
    assert signals[-1].above_page_seconds == 29.0
    assert signals[-1].growth is None
    assert signals[-1].harm is None


def test_a_clock_that_stands_or_goes_back_is_ignored_and_the_wall_clock_has_no_say() -> None:
    tracker = NodeTracker(DEFAULT)
    states = seconds(200, lambda n: {"pool": {"held": 1000 + 10 * n}})
    jumped = [msgspec.structs.replace(state, at=state.at + (86400 if n > 100 else 0)) for n, state in enumerate(states)]
    signals = play(jumped, tracker)

    again = tracker.take(msgspec.structs.replace(states[100], monotonic=50_000.0 + 100)).engines[0]
    assert again == signals[-1]
    assert signals[-1].growth == play(states)[-1].growth


@pytest.mark.parametrize(
    ("changes", "harm"),
    [
        ({}, False),
        ({"allocation": {"waiting_refused": 1}}, True),
        ({"allocation": {"refused_total": 50}}, True),
        ({"allocation": {"preempted_total": 1}}, True),
    ],
)
def test_harm_is_what_waits_for_memory_or_was_refused(changes: dict[str, Any], harm: bool) -> None:
    states = seconds(100, lambda n: {"pool": {"held": 9900}} | (changes if n == 70 else {}))
    signals = play(states)

    assert signals[30].harm is None
    assert signals[65].harm is False
    assert signals[75].harm is harm


def test_harm_is_over_after_a_minute() -> None:
    states = seconds(200, lambda n: {"pool": {"held": 9900}, "allocation": {"waiting_refused": int(n == 70)}})

    assert [play(states)[n].harm for n in (100, 131)] == [True, False]


def test_a_page_tells_harm_by_what_waits_in_a_full_pool() -> None:
    full = play(seconds(90, lambda n: {"usage_ratio": 0.97, "waiting": 3, "held_blocks": 9700}, paged))[-1]
    roomy = play(seconds(90, lambda n: {"usage_ratio": 0.6, "waiting": 3, "held_blocks": 6000}, paged))[-1]
    dumb = play(seconds(90, lambda n: {"usage_ratio": 0.6, "waiting": None, "preemptions": None}, paged))[-1]

    assert (full.harm, roomy.harm, dumb.harm) == (True, False, None)


def _page(held: float, running: int, n: int) -> dict[str, Any]:
    return {
        "usage_ratio": held / 10_000,
        "held_blocks": round(held),
        "running": running,
        "generation_tokens": 2000 * n,
        "prompt_tokens": 4000 * n,
    }


def test_a_page_s_growth_with_its_requests_is_explained_and_growth_beside_them_is_not() -> None:
    def load(n: int) -> int:
        return 10 + (n // 60) % 7 + n // 120

    grows = play(seconds(1200, lambda n: _page(100 * load(n), load(n), n), paged, step=5))[-1]
    leaks = play(seconds(1200, lambda n: _page(100 * load(n) + 4 * n, load(n), n), paged, step=5))[-1]

    assert grows.unexplained is not None
    assert grows.unexplained.low <= 0
    assert grows.unexplained.per_minute == pytest.approx(0.0, abs=0.003)
    assert leaks.unexplained is not None
    assert leaks.unexplained.low > 0
    assert leaks.unexplained.per_minute == pytest.approx(0.024, rel=0.3)


def test_a_page_s_pool_that_finds_its_level_is_explained() -> None:
    rising = [_page(6000 * (1 - 2 ** (-n / 150)), 40, n) for n in range(0, 1200, 5)]
    signals = play([paged(5 * n, **changes) for n, changes in enumerate(rising)])

    assert signals[-1].unexplained is not None
    assert signals[-1].unexplained.low <= 0


def test_what_stays_while_nothing_runs_is_the_idle_floor() -> None:
    states = seconds(60, lambda n: {"pool": {"held": 500}, "running": 0 if n >= 20 else 3})
    signals = play(states)

    assert signals[10].idle_floor_ratio is None
    assert signals[-1].idle_floor_ratio == 0.05
    assert signals[-1].idle_floor_seconds == 39.0


def test_work_without_tokens_is_counted_in_seconds() -> None:
    def make(n: int) -> dict[str, Any]:
        return _page(3000, 4, min(n, 30))

    still = play(seconds(60, make, paged))
    idle = play(seconds(60, lambda n: make(n) | {"running": 0}, paged))

    assert still[20].still_seconds == 0.0
    assert still[-1].still_seconds == 29.0
    assert idle[-1].still_seconds == 0.0


def test_rates_ratios_and_quantiles_are_of_the_last_minutes() -> None:
    def make(n: int) -> dict[str, Any]:
        counts = make_histogram(bounds=(1.0, 2.0, 4.0), counts=(98 * n, n, n, 0))
        tenant = make_tenant(
            generated_tokens_total=300 * n, prompt_tokens_total=1000 * n, ended_total={"finished": 9 * n, "error": n}
        )
        work = make_work(
            prefill_tokens_total=500 * n,
            rebuilt_preempted_total=50 * n,
            rebuilt_evicted_total=25 * n,
            rebuild_seconds_total=0.1 * n,
            request_seconds=counts,
        )
        allocation = {"preempted_total": n, "wait_seconds": counts, "blocks_taken_total": 20 * n}
        return {"pool": {"held": 3000}, "allocation": allocation, "detail": {"tenants": (tenant,), "work": work}}

    last = play(seconds(400, make))[-1]

    assert last.preempted_per_minute == pytest.approx(60)
    assert last.taken_per_minute == pytest.approx(1200)
    assert last.tokens_per_second == pytest.approx(300)
    assert last.tokens_per_running == pytest.approx(300 / 8)
    assert last.rebuild_ratio == pytest.approx(0.15)
    assert last.rebuild_evicted_ratio == pytest.approx(0.05)
    assert last.rebuild_cost_ratio == pytest.approx(0.1)
    assert last.prefix_hit_ratio == pytest.approx(0.55)
    assert last.failed_ratio == pytest.approx(0.1)
    assert last.latency_p99_seconds == pytest.approx(2.0)
    assert last.request_p99_seconds == pytest.approx(2.0)
    assert last.harm is True


def test_the_long_tail_is_of_the_prompts_of_five_minutes_and_against_what_is_usual() -> None:
    def make(n: int) -> dict[str, Any]:
        short, long = (95 * n, 5 * n) if n < 3000 else (95 * 3000 + 65 * (n - 3000), 5 * 3000 + 35 * (n - 3000))
        lengths = make_histogram(bounds=(1024.0, 4096.0, 16384.0), counts=(0, short, long, 0))
        return {"pool": {"held": 3000}, "detail": {"work": make_work(prompt_tokens=lengths)}}

    signals = play(seconds(3600, make, step=5))

    assert signals[0].long_tail_ratio is None
    assert "too few requests" in signals[0].missing["long_tail_ratio"]
    assert signals[595].long_tail_ratio == pytest.approx(0.05)
    assert signals[595].long_tail_times == pytest.approx(1.0)
    assert signals[-1].long_tail_ratio == pytest.approx(0.35)
    assert signals[-1].long_tail_times == pytest.approx(7.0, rel=0.02)


def test_after_a_reload_the_long_tail_is_of_what_is_long_now() -> None:
    def make(n: int) -> dict[str, Any]:
        lengths = make_histogram(bounds=(1024.0, 4096.0, 16384.0), counts=(45 * n, 50 * n, 5 * n, 0))
        return {"pool": {"held": 3000}, "detail": {"work": make_work(prompt_tokens=lengths)}}

    tracker = NodeTracker(DEFAULT)
    before = play(seconds(3600, make, step=5), tracker)[-1]
    assert before.long_tail_ratio == pytest.approx(0.05)
    assert before.long_tail_times == pytest.approx(1.0)
    workload = DEFAULT.workload.model_copy(update={"long_tokens": 1024})
    tracker.adopt(DEFAULT.model_copy(update={"workload": workload}))
    after = play([hooked(n, **make(n)) for n in range(3600, 3620, 5)], tracker)[-1]
    assert after.long_tail_ratio == pytest.approx(0.55)
    assert after.long_tail_times is None, "it is not eleven times as many: more count as long"


def test_counters_that_begin_anew_give_no_value() -> None:
    states = seconds(100, lambda n: {"pool": {}, "allocation": {"preempted_total": 1000 - 10 * n}})

    assert play(states)[-1].preempted_per_minute is None


def test_what_is_usual_is_learned_kept_and_not_learned_from_what_is_far_off() -> None:
    def make(n: int) -> dict[str, Any]:
        references = 2000 if n < 3000 else 20_000
        return {"pool": {"held": 3000}, "detail": {"tenants": (make_tenant(references=references),)}}

    tracker = NodeTracker(DEFAULT)
    signals = play(seconds(3600, make, step=5), tracker)
    kept = msgspec.json.decode(msgspec.json.encode(tracker.baselines()), type=Baselines)
    heir = play([hooked(0, **make(3300))], NodeTracker(DEFAULT, kept))

    assert signals[100].context_times is None
    assert signals[100].missing["context_times"] == "not learned yet"
    assert signals[595].context_times == pytest.approx(1.0, rel=0.02)
    assert signals[-1].context_times == pytest.approx(10.0, rel=0.05)
    assert heir[0].context_times == pytest.approx(10.0, rel=0.05)
    other = msgspec.structs.replace(kept, version=99)
    assert play([hooked(0, **make(3300))], NodeTracker(DEFAULT, other))[0].context_times is None


def test_lengths_of_prompts_are_of_the_last_minutes_and_held_against_what_is_usual() -> None:
    """One prompt a second of 500 tokens; from 40 minutes on every other one has 6,000."""

    def make(n: int) -> dict[str, Any]:
        long = max(0, n - 2400) // 2
        counts = make_histogram(bounds=(1024.0, 4096.0, 8192.0), counts=(n - long, 0, long, 0))
        counts = msgspec.structs.replace(counts, sum=500.0 * (n - long) + 6000.0 * long)
        return {"pool": {"held": 3000}, "detail": {"work": make_work(prompt_tokens=counts)}}

    signals = play(seconds(3000, make, step=5))

    before, after = signals[2390 // 5], signals[-1]
    assert before.prompt_mean_tokens == pytest.approx(500.0)
    assert before.prompt_times == pytest.approx(1.0)
    assert before.long_tail_ratio == 0.0
    assert after.prompt_mean_tokens == pytest.approx(3250.0, rel=0.02)
    assert after.prompt_times == pytest.approx(6.5, rel=0.02)
    assert after.long_tail_ratio == pytest.approx(0.5, rel=0.02)
    assert after.long_tail_times == pytest.approx(25.0, rel=0.02), "a share of less than 2 % counts as that"


def test_few_prompts_and_hooks_that_do_not_count_them_have_no_lengths() -> None:
    few = make_histogram(bounds=(1024.0, 4096.0), counts=(5, 0, 0))
    for counts in (few, None):
        work = make_work(prompt_tokens=counts)
        last = play(seconds(400, lambda n, work=work: {"pool": {}, "detail": {"work": work}}, step=5))[-1]
        assert last.prompt_mean_tokens is None
        assert last.long_tail_ratio is None
        assert "too few requests" in last.missing["long_tail_ratio"]


def test_what_cannot_be_told_is_none_and_says_why() -> None:
    states = seconds(100, lambda n: {"pool": {"orphaned": None}})
    last = play(states)[-1]

    assert last.unexplained is None
    assert last.missing["unexplained"] == "orphaned blocks can't be counted on this engine"
    page = play(seconds(10, lambda n: {"usage_ratio": None, "held_blocks": None, "running": None}, paged))[-1]
    assert page.use_ratio is None
    assert page.growth is None
    assert page.missing["growth"] == "the size of its pool is not known"
    assert page.missing["unexplained"] == "its page does not say how many requests run"


@pytest.mark.parametrize("absent", [20, 200, 1000])
def test_a_page_whose_number_is_gone_grows_no_more_and_begins_anew(absent: int) -> None:
    def leaks(n: int) -> dict[str, Any]:
        held = 1000 + 20 * min(n, 400)
        return {"held_blocks": held, "usage_ratio": held / 10_000, "running": 4, "generation_tokens": 10_000 * n}

    def none(n: int) -> dict[str, Any]:
        return leaks(n) | {"held_blocks": None, "usage_ratio": None}

    tracker = NodeTracker(DEFAULT)
    before = play([paged(n, **leaks(n)) for n in range(400)], tracker)[-1]
    assert before.unexplained is not None
    assert before.unexplained_above_page_seconds > 0
    for signals in play([paged(n, **none(n)) for n in range(400, 400 + absent)], tracker):
        assert (signals.growth, signals.unexplained, signals.slow) == (None, None, None)
        assert (signals.acceleration, signals.in_teeth, signals.unexplained_above_page_seconds) == (None, False, 0.0)
        assert signals.missing["growth"] == "the size of its pool is not known"
    after = play([paged(n, **leaks(n)) for n in range(400 + absent, 460 + absent)], tracker)
    assert after[0].growth is None
    assert after[0].unexplained is None


def test_an_engine_that_is_silent_has_no_signals() -> None:
    tracker = NodeTracker(DEFAULT)
    tracker.take(hooked(0, pool={}))

    assert not tracker.take(hooked(1, pool={}, phase="silent")).engines


def test_the_longest_prompt_is_told_as_times_their_mean() -> None:
    def prompts(n: int) -> dict[str, Any]:
        # A hundred prompts of 128 tokens and one of more than 4,096 in five minutes.
        counts = (n, 0, n // 100, 0)
        lengths = make_histogram(bounds=(256.0, 4096.0, 8192.0), counts=counts, sum=128.0 * n + 5000.0 * (n // 100))
        return {"pool": {"held": 3000}, "detail": {"work": make_work(prompt_tokens=lengths)}}

    last = play(seconds(320, prompts, step=2))[-1]
    assert last.prompt_spread_times == pytest.approx(4096 / 176, rel=0.05)


def test_quantiles_of_what_is_held_need_five_minutes() -> None:
    def holds(n: int) -> dict[str, Any]:
        return {"pool": {"held": 9000 if n % 100 < 4 else 3000, "block_bytes": 10**6}}

    said = play(seconds(1300, holds))
    assert said[200].kv_p90_bytes is None
    assert said[200].kv_p99_bytes is None
    assert (said[-1].kv_p90_bytes, said[-1].kv_p99_bytes) == (9 * 10**9, 9 * 10**9)
    rare = play(seconds(1300, lambda n: {"pool": {"held": 9000 if n < 11 else 3000, "block_bytes": 10**6}}))[-1]
    assert (rare.kv_p90_bytes, rare.kv_p99_bytes) == (3 * 10**9, 9 * 10**9)


def test_repeated_text_is_absent_until_the_api_servers_tell_of_it() -> None:
    def said(*rows: HygieneRow) -> EngineSignals:
        members = (make_frontend(frontend=FrontendRow(count=1, requests=1, hygiene=rows)),)
        return play([hooked(0.0, pool={}, members=members)])[0]

    def row(tenant: str, requests: int, ratio: float) -> HygieneRow:
        return HygieneRow(tenant=tenant, requests=requests, invisible_ratio=0.0, repeated_ratio=ratio)

    assert said().repeated_ratio is None
    assert "repeated_ratio" in said().missing
    assert said(row("a", 30, 0.8), row("b", 10, 0.0)).repeated_ratio == pytest.approx(0.6)
    assert said(row("a", 30, 0.0)).repeated_ratio == 0.0
