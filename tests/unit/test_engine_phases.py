"""Live, silent, lost: with injected times, at the exact limits, and values only while live."""

from __future__ import annotations

import math

import msgspec
import pytest

from agent.engines import EngineTable
from agent.state import EngineState
from engine_hooks.own_memory import OwnMemoryRow
from engine_hooks.wire import Heartbeat, HookReport, Support
from tests.unit.builders import MIB, make_hello, make_pool_report, make_report

BEAT = Heartbeat(silent_seconds=1.0)


def started(now: float = 100.0, **changes: object) -> EngineTable:
    table = EngineTable(3.0)
    table.hello(make_hello(**changes), 4321, now)
    return table


def state(table: EngineTable, now: float) -> EngineState:
    (found,) = table.states(now, 0.0)
    return found


def assert_no_values(found: EngineState) -> None:
    assert found.phase != "live"
    assert found.reason
    assert (found.report_sequence, found.steps, found.running, found.waiting) == (None,) * 4
    assert (found.pool, found.hooks) == (None, None)
    assert found.verdicts == ()


def test_before_the_first_report_it_is_silent_and_has_no_values() -> None:
    found = state(started(), 100.5)
    assert_no_values(found)
    assert (found.phase, found.reason) == ("silent", "connected; no report yet")
    assert found.report_age_seconds is None


def test_a_report_makes_it_live_with_exactly_its_values() -> None:
    table = started()
    hooks = HookReport(errors={"a": 1}, off={"b": "why"}, dropped_frames=2, hook_seconds=0.5, step_seconds=9.0)
    table.report("i1", make_report(hooks=hooks, sequence=17), 101.0)
    found = state(table, 101.25)
    assert (found.phase, found.reason, found.report_age_seconds) == ("live", "", 0.25)
    assert (found.report_sequence, found.steps, found.running, found.waiting) == (17, 5000, 8, 3)
    assert found.hooks is not None
    assert (found.hooks.errors, found.hooks.off, found.hooks.dropped_frames) == ({"a": 1}, {"b": "why"}, 2)
    assert (found.hooks.hook_seconds, found.hooks.step_seconds) == (0.5, 9.0)
    pool = found.pool
    assert pool is not None
    assert (pool.capacity, pool.held, pool.held_min, pool.held_max) == (1000, 300, 290, 310)
    assert (pool.cached_idle, pool.empty) == (200, 500)
    assert (pool.block_tokens, pool.block_bytes, pool.bytes_of(pool.held)) == (16, MIB, 300 * MIB)


@pytest.mark.parametrize(
    ("pool", "cached", "empty"),
    [
        (make_pool_report(cached_idle=None), None, None),
        (make_pool_report(cached_idle=0), 0, 700),
        (make_pool_report(held=1000, cached_idle=0), 0, 0),
        (make_pool_report(held=0, cached_idle=1000), 1000, 0),
    ],
)
def test_empty_is_what_is_left_or_not_known(pool: object, cached: int | None, empty: int | None) -> None:
    table = started()
    table.report("i1", make_report(pool), 100.0)
    found = state(table, 100.0).pool
    assert found is not None
    assert (found.cached_idle, found.empty) == (cached, empty)


def test_an_engine_without_a_pool_is_live_without_one() -> None:
    table = started(pool=None, audit=Support(ok=False, reason="no pool"))
    table.report("i1", msgspec.structs.replace(make_report(), pool=None), 100.0)
    found = state(table, 100.0)
    assert (found.phase, found.pool, found.running) == ("live", None, 8)
    assert (found.audit_supported, found.audit_reason) == (False, "no pool")


def test_a_pool_without_blocks_is_no_pool() -> None:
    table = started()
    table.report("i1", make_report(make_pool_report(capacity=0, held=0, cached_idle=0, orphaned=3)), 100.0)
    assert state(table, 100.0).pool is None


def test_bytes_are_not_known_without_a_block_size() -> None:
    table = started(pool=None)
    table.report("i1", make_report(), 100.0)
    pool = state(table, 100.0).pool
    assert pool is not None
    assert (pool.block_bytes, pool.bytes_of(5)) == (None, None)


def test_silent_after_three_periods_without_a_word_and_not_before() -> None:
    table = started()
    table.report("i1", make_report(), 100.0)
    assert state(table, 103.0).phase == "live"
    found = state(table, 103.125)
    assert_no_values(found)
    assert found.reason == "no word for 3.1 s: the process is stopped or gets no CPU"
    assert (found.link_up, found.report_age_seconds) == (True, 3.125)
    table.tick(10_000.0)
    assert state(table, 10_000.0).phase == "silent"  # a connection that stands is never forgotten


def test_heartbeats_alone_say_that_the_engine_thread_hangs() -> None:
    table = started()
    table.report("i1", make_report(), 100.0)
    table.heartbeat("i1", BEAT, 103.0)
    assert state(table, 103.0).phase == "live"
    found = state(table, 103.5)
    assert_no_values(found)
    assert (found.phase, found.reason) == ("silent", "its engine thread has finished no step for 3.5 s")
    table.report("i1", make_report(), 104.0)
    assert state(table, 104.0).phase == "live"


def test_what_a_core_tells_of_its_memory_is_shown_while_it_tells_it() -> None:
    table = started()
    table.report("i1", make_report(), 100.0)
    memory = OwnMemoryRow(resident_bytes=600, cgroup_bytes=900)
    table.heartbeat("i1", Heartbeat(silent_seconds=0.1, memory=memory), 100.0)
    table.heartbeat("i1", BEAT, 101.0)
    table.report("i1", make_report(), 129.0)
    assert state(table, 129.0).memory == memory
    table.report("i1", make_report(), 131.0)
    assert state(table, 131.0).memory is None
    table.heartbeat("i1", Heartbeat(silent_seconds=0.1, memory=memory), 132.0)
    table.disconnected("i1", 132.0)
    assert state(table, 132.0).memory is None


def test_an_engine_in_its_callers_loop_stays_live_on_heartbeats() -> None:
    table = started(in_process=True)
    table.report("i1", make_report(), 100.0)
    for second in range(101, 160):
        table.heartbeat("i1", BEAT, float(second))
    found = state(table, 162.0)
    assert (found.phase, found.running, found.report_age_seconds) == ("live", 8, 62.0)
    assert state(table, 162.25).phase == "silent"


def test_lost_when_the_link_ends_and_gone_within_three_periods() -> None:
    table = started()
    table.report("i1", make_report(), 100.0)
    table.disconnected("i1", 101.0)
    found = state(table, 103.0)
    assert_no_values(found)
    assert (found.phase, found.link_up) == ("lost", False)
    assert found.reason == "the link ended 2.0 s ago: the engine or its hooks are gone"
    table.tick(103.0)
    assert len(table.states(103.0, 0.0)) == 1  # two periods: it may be on its way back
    table.tick(103.001)
    assert table.states(103.001, 0.0) == ()


def test_the_same_instance_that_comes_back_continues() -> None:
    table = started()
    table.report("i1", make_report(steps=50), 100.0)
    table.disconnected("i1", 101.0)
    table.hello(make_hello(pid=9), 99, 102.0)
    found = state(table, 102.0)
    assert (found.phase, found.steps, found.pid, found.link_up) == ("live", 50, 99, True)
    table.tick(200.0)
    assert state(table, 200.0).phase == "silent"


@pytest.mark.parametrize(
    ("claimed", "limit"),
    [(0.0, 0.3), (-5.0, 0.3), (0.5, 1.5), (10.0, 30.0), (1e9, 30.0), (math.inf, 30.0), (math.nan, 0.3)],
)
def test_the_claimed_period_is_bounded(claimed: float, limit: float) -> None:
    table = started(0.0, idle_period_seconds=claimed)
    table.report("i1", make_report(), 0.0)
    assert state(table, limit * 0.99).phase == "live"
    assert state(table, limit * 1.01).phase == "silent"
    table.disconnected("i1", 0.0)
    table.tick(max(2.0, limit) * 1.01)  # a lost engine has two seconds to come back
    assert table.states(limit, 0.0) == ()


def test_periods_are_configurable() -> None:
    table = EngineTable(5.0)
    table.hello(make_hello(), 1, 100.0)
    table.report("i1", make_report(), 100.0)
    assert state(table, 105.0).phase == "live"
    assert state(table, 105.25).phase == "silent"


def test_the_version_changes_with_every_change() -> None:
    table = EngineTable(3.0)
    table.tick(1.0)
    seen = [table.version]
    for change in (
        lambda: table.hello(make_hello(), 1, 2.0),
        lambda: table.report("i1", make_report(), 3.0),
        lambda: table.tick(3.5),
        lambda: table.disconnected("i1", 4.0),
        lambda: table.tick(8.0),
    ):
        change()
        seen.append(table.version)
    assert len(set(seen)) == 6
    table.tick(9.0)
    assert table.version == seen[-1]  # nobody there: nothing changes
