"""Where a pool has been made smaller, that is the first thing that a person is told to take back."""

from __future__ import annotations

from typing import Any

import pytest

from agent.verdicts import kv_pressure
from agent.verdicts.eviction_storm import EvictionStorm
from agent.verdicts.offline import grow_back_first
from engine_hooks.detail import CompactionRow
from tests.unit.details import make_compaction, make_detail
from tests.unit.facts import facts
from tests.unit.timeline import pool

FIRST = "900 blocks are offline (47% of the pool): undoing compact grows it back."


def test_both_verdicts_on_a_short_pool_begin_with_it() -> None:
    smaller: dict[str, Any] = {"pool": pool(capacity=1000), "detail": make_detail()}
    storm = EvictionStorm().judge(facts(rebuild_evicted_ratio=0.3, **smaller))
    assert storm is not None
    assert storm.remedy.startswith(f"{FIRST} What helps: ")
    assert kv_pressure.remedy(facts(**smaller)).startswith(f"{FIRST} ")


@pytest.mark.parametrize("row", [None, make_compaction(offline=0), make_compaction(offline=40)])
def test_it_is_not_named_where_hardly_any_block_is_offline(row: CompactionRow | None) -> None:
    assert grow_back_first(facts(pool=pool(capacity=1000), detail=make_detail(compaction=row))) == ""


def test_nor_where_nothing_is_known_of_it() -> None:
    assert grow_back_first(facts(pool=pool(capacity=1000))) == ""
    assert grow_back_first(facts(pool=None, detail=make_detail())) == ""
