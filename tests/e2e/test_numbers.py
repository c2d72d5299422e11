"""The agent's numbers are the engine's own, and what is orphaned is exactly what was leaked."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator

import pytest
from kvtide_chaos.kv_blocks import arm, wait_planted

from tests.bed.agent import PATIENCE_SECONDS
from tests.bed.load import LoadPlan, LoadReport, Tenant, run_load
from tests.e2e.conftest import BLOCKS, Rig

CAPACITY = BLOCKS - 1  # vLLM keeps one block for itself: the null block
TENANTS = (
    Tenant("acme", weight=3, prompt=(40, 300), output=(10, 60), prefix=32, abort_ratio=0.3),
    Tenant("umbrella", prompt=(200, 900), output=(40, 250), prefix=128, abort_ratio=0.2),
)


def at_rest(rig: Rig) -> bool:
    engine = rig.agent.engine()
    return engine["phase"] == "live" and engine["running"] == engine["waiting"] == 0


def own_held(rig: Rig) -> int:
    """Held blocks by the engine's own gauge."""
    return round(rig.engine.metrics()["vllm:kv_cache_usage_perc"] * CAPACITY)


async def sampled(rig: Rig, plan: LoadPlan, *looks: Callable[[], None]) -> LoadReport:
    """Run a load, and meanwhile each of ``looks`` again and again in a thread of its own; return the load's report."""
    load = asyncio.create_task(run_load(rig.engine.url, plan))

    def watch(look: Callable[[], None]) -> None:
        while not load.done():
            look()
            time.sleep(0.01)

    await asyncio.gather(*(asyncio.to_thread(watch, look) for look in looks))
    return await load


async def test_numbers_equal_the_engines_own(rig: Rig) -> None:
    # vLLM's gauge moves with steps alone: what a test before this one has leaked at rest is not in it.
    await run_load(rig.engine.url, LoadPlan(requests=1, concurrency=1))
    rig.agent.wait(lambda: at_rest(rig) and rig.agent.engine()["pool"]["held"] == own_held(rig))
    pool = rig.agent.pool()
    assert pool is not None
    assert pool["capacity"] == CAPACITY
    assert pool["held"] == own_held(rig) == pool["orphaned"]
    assert pool["held"] + pool["cached_idle"] + pool["empty"] == CAPACITY

    # Report number -> when we saw it, least and most held in any step since the last report.
    ours: dict[int, tuple[float, int, int]] = {}
    theirs: list[tuple[float, float, int]] = []  # asked, answered, held

    def look_at_ours() -> None:
        state = rig.agent.engine()
        if state["pool"] is not None:
            seen = (time.monotonic(), state["pool"]["held_min"], state["pool"]["held_max"])
            ours.setdefault(state["report_sequence"], seen)

    def look_at_theirs() -> None:
        asked = time.monotonic()
        held = own_held(rig)
        theirs.append((asked, time.monotonic(), held))

    look_at_ours()
    plan = LoadPlan(requests=60, seconds=300, concurrency=12, tenants=TENANTS, seed=1)
    report = await sampled(rig, plan, look_at_ours, look_at_theirs)
    assert report.failed == 0, report.errors
    assert max(held for *_, held in theirs) > CAPACITY // 4, "the load was too light to tell anything"

    def two_reports_past_the_last_answer() -> bool:
        look_at_ours()
        return sum(at >= theirs[-1][1] for at, *_ in ours.values()) >= 2

    rig.agent.wait(two_reports_past_the_last_answer)
    matched = 0
    for asked, answered, held in theirs:
        # The gauge is of the last step that the API server had heard of: some seconds ago on a busy machine. Our range
        # for that step comes with the first report after it, and reports may come late, too, and several at once: look
        # two reports past the answer, and a second.
        near = [number for number, (at, *_) in ours.items() if asked - 3.0 < at < answered]
        later = [number for number, (at, *_) in ours.items() if at >= answered]
        near += [number for place, number in enumerate(later) if place < 2 or ours[number][0] < answered + 1.0]
        if any(ours[number][1] <= held <= ours[number][2] for number in near):
            matched += 1
        else:
            # The step may be in a report that was replaced before we looked: one of a number between those that we saw.
            before = max((number for number, (at, *_) in ours.items() if at <= asked - 3.0), default=min(ours))
            missed = near[-1] - before > sum(number in ours for number in range(before + 1, near[-1] + 1))
            assert missed, f"the engine held {held} blocks; our reports: {[ours[number] for number in near]}"
    assert matched > 0.8 * len(theirs) > 8

    rig.agent.wait(lambda: at_rest(rig) and rig.agent.engine()["pool"]["held"] == own_held(rig))


async def test_nothing_is_orphaned_by_aborts_preemption_and_prefix_caching(rig: Rig) -> None:
    rig.agent.wait(lambda: at_rest(rig))
    before = rig.agent.engine()["pool"]
    engine_before = rig.engine.metrics()
    seen: set[tuple[int, int]] = set()

    def look() -> None:
        pool = rig.agent.pool()
        if pool is not None:
            seen.add((pool["orphaned"], pool["over_freed"]))

    plan = LoadPlan(requests=500, seconds=900, concurrency=48, tenants=TENANTS, seed=2)
    report = await sampled(rig, plan, look)
    assert report.failed == 0, report.errors
    assert report.started == 500
    assert report.aborted > 50
    rig.agent.wait(lambda: at_rest(rig))
    look()
    assert seen == {(before["orphaned"], 0)}
    engine_after = rig.engine.metrics()

    def grown(name: str) -> float:
        return engine_after[name] - engine_before[name]

    assert grown("vllm:num_preemptions_total") > 0, "the pool was too large to preempt anybody"
    assert grown("vllm:prefix_cache_hits_total") > 0
    assert rig.agent.engine()["hooks"]["errors"] == {}
    assert rig.agent.pool()["ledger_drift"] == 0


async def test_leak_at_rest_is_seen_exactly_and_said(rig: Rig) -> None:
    rig.agent.wait(lambda: at_rest(rig))
    before = rig.agent.pool()["orphaned"]
    arm(rig.leaks, 3, 17)
    plan = LoadPlan(requests=24, seconds=300, concurrency=4, tenants=TENANTS[:1], seed=3)
    report = await run_load(rig.engine.url, plan)
    assert report.failed == 0, report.errors
    # How many were leaked is read only afterwards.
    rig.agent.wait(lambda: at_rest(rig) and rig.agent.pool()["orphaned"] > before)
    shown = rig.agent.metrics()["kvtide_kv_blocks_orphaned"]
    planted = wait_planted(rig.leaks, PATIENCE_SECONDS)
    assert shown == before + planted.n
    assert rig.agent.metrics()["kvtide_kv_orphaned_bytes"] == shown * rig.agent.pool()["block_bytes"]
    rig.agent.wait(lambda: "confirmed" in phases(rig))
    (verdict,) = rig.agent.verdicts("kv_orphan")
    assert f"{shown:.0f} KV blocks are held by no request" in verdict["sentence"]
    series = r'kvtide_verdict\{scope="engine",engine="tiny",.*kind="kv_orphan",phase="confirmed",tier="\w+"\} 1\.0'
    assert re.search(series, rig.agent.get("/metrics"))


def phases(rig: Rig) -> Iterator[str]:
    return (verdict["phase"] for verdict in rig.agent.verdicts("kv_orphan"))


@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy", "/-/ready", "/api/v1/state"])
def test_endpoints_answer(rig: Rig, path: str) -> None:
    assert rig.agent.get(path)
