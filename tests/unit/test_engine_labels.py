"""The names that engines get: unique while they live, and handed on to a successor."""

from __future__ import annotations

import pytest

from agent.engines import EngineTable
from tests.unit.builders import make_hello


def labels(table: EngineTable, now: float = 100.0) -> dict[str, str]:
    return {state.engine: state.instance for state in table.states(now, 0.0)}


def join(table: EngineTable, instance: str, **changes: object) -> None:
    table.hello(make_hello(instance=instance, **changes), 1, 100.0)


def test_a_single_engine_has_its_name(table: EngineTable) -> None:
    join(table, "a")
    assert labels(table) == {"m": "a"}


def test_the_same_name_gets_a_number(table: EngineTable) -> None:
    for instance in "abc":
        join(table, instance)
    assert labels(table) == {"m": "a", "m~2": "b", "m~3": "c"}


def test_data_parallel_ranks_have_a_suffix(table: EngineTable) -> None:
    for index in (0, 1):
        join(table, f"r{index}", index=index, data_parallel_size=2)
    join(table, "other", index=1, data_parallel_size=2)
    assert labels(table) == {"m-dp0": "r0", "m-dp1": "r1", "m-dp1~2": "other"}


def test_a_rank_that_thinks_it_is_alone_has_a_suffix(table: EngineTable) -> None:
    for index in (0, 1):
        join(table, f"r{index}", index=index, data_parallel=True)
    assert labels(table) == {"m-dp0": "r0", "m-dp1": "r1"}


def test_a_successor_takes_the_name_of_a_lost_engine_at_once(table: EngineTable) -> None:
    join(table, "old")
    table.disconnected("old", 100.0)
    join(table, "new")
    assert labels(table) == {"m": "new"}


def test_a_silent_engine_keeps_its_name(table: EngineTable) -> None:
    join(table, "stopped")
    table.tick(1_000.0)
    join(table, "new")
    assert labels(table, 1_000.0) == {"m": "stopped", "m~2": "new"}


def test_a_predecessor_that_comes_back_after_all_is_a_newcomer(table: EngineTable) -> None:
    join(table, "old")
    table.disconnected("old", 100.0)
    join(table, "new")
    join(table, "old")
    assert labels(table) == {"m": "new", "m~2": "old"}


def test_an_instance_that_returns_keeps_its_label(table: EngineTable) -> None:
    join(table, "a")
    join(table, "b")
    table.disconnected("b", 100.0)
    join(table, "b")
    assert labels(table) == {"m": "a", "m~2": "b"}


def test_a_label_that_became_free_is_given_again(table: EngineTable) -> None:
    for instance in "abc":
        join(table, instance)
    table.disconnected("b", 100.0)
    table.tick(103.001)
    join(table, "d")
    assert labels(table) == {"m": "a", "m~2": "d", "m~3": "c"}


def test_states_are_sorted_and_tell_who_each_is(table: EngineTable) -> None:
    join(table, "z", name="z", engine_id="ez", host="h", index=2, rank=3, engine_version="v", hooks_version="w")
    join(table, "a", name="a")
    first, second = table.states(100.0, 0.0)
    assert (first.engine, second.engine) == ("a", "z")
    assert (second.engine_id, second.host, second.index, second.rank) == ("ez", "h", 2, 3)
    assert (second.engine_version, second.hooks_version, second.started_at) == ("v", "w", 1_700_000_000.0)
    assert (second.pid, second.audit_supported, second.audit_reason) == (1, True, "")


@pytest.mark.parametrize("size", [0, 1])
def test_no_suffix_without_data_parallelism(table: EngineTable, size: int) -> None:
    join(table, "a", index=4, data_parallel_size=size)
    assert labels(table) == {"m": "a"}
