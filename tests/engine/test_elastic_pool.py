"""An engine whose pool is kvcached's: it is observed as far as it can be, and says how to have it smaller."""

from __future__ import annotations

import functools

import pytest

from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.registry import LEVERS
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from engine_hooks.levers.desk import build
from engine_hooks.settings import Settings
from tests.bed.elastic import give
from tests.bed.scheduler import BareEngine, make_request, make_scheduler, step
from tests.engine.levers.remembering import ALL


@pytest.mark.parametrize("listed", [False, True], ids=["without a list of blocks", "with one"])
def test_it_serves_and_the_levers_on_its_blocks_say_why_not(listed: bool) -> None:
    scheduler = make_scheduler(100, caching=False, max_num_seqs=8)
    pool = give(scheduler, 99, listed=listed)
    guard, view = Guard(), SchedulerView(scheduler)
    accounts = KVAccounts(view, guard, lambda: 0.0)
    accounts.start()
    taps = Taps(scheduler, guard)
    taps.install()
    engine = BareEngine(scheduler=scheduler)
    settings = Settings.from_environment({"KVTIDE_LEVERS": ALL})
    context = LeverContext(engine, scheduler, view, taps, accounts, {}, guard, settings, lambda: 0.0, lambda: 0.0)
    levers, unsupported = build([(make.NAME, functools.partial(make, context)) for make in LEVERS])
    for number in range(12):
        scheduler.add_request(make_request(number, 100, 10))
    seen = []
    while scheduler.requests:
        step(scheduler)
        seen.append(view.held())
    assert max(seen) > 0
    assert (seen[-1], pool.kv_cache_manager.taken) == (0, set())
    assert guard.errors == {}
    missing = "free_block_queue" if listed else "blocks"
    assert (accounts.support.ok, accounts.support.reason) == (False, f"ElasticBlockPool has no {missing}")
    assert {"evict_idle", "hold_hot", "compact", "reclaim_orphans"}.isdisjoint(levers)
    assert "kvctl limit" in unsupported["compact"]
    assert unsupported["compact"].endswith("not every version grows again"), "nothing of it is cut off"
    assert unsupported["evict_idle"] == f"ElasticBlockPool has no {'free_block_queue'}"
