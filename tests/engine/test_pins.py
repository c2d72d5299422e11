"""References that connectors take: known ones are explained, unknown ones age, and a leak beside them is seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.core.pinned import Pinned
from engine_hooks.core.pins import MooncakeStorePins, find_pins
from engine_hooks.core.pools import Pools
from engine_hooks.core.view import SchedulerView
from tests.bed.connectors import block_bytes, finish_jobs, make_connector_scheduler, step
from tests.bed.scheduler import make_request
from tests.engine.observing import Watched

OFFLOAD = {"cpu_bytes_to_use": 64 * block_bytes()}


def watch(name: str, **more: Any) -> Watched[Pinned]:
    return Watched(make_connector_scheduler(name, **more), Pinned)


def take(watched: Watched[Pinned], n: int) -> list[Any]:
    """Blocks that nobody holds a table entry for: a leak, or an offload job's."""
    return watched.pool.get_new_blocks(n)


def test_simple_offload_is_exact_at_every_step() -> None:
    watched = watch("SimpleCPUOffloadConnector", extra_config=OFFLOAD)
    assert watched.accounts.support.ok
    assert [other.name for other in watched.accounts.main.view.others] == ["cpu_offload"]
    connector = watched.scheduler.connector
    seen = 0
    for i in range(12):
        watched.scheduler.add_request(make_request(i % 6, 100, max_tokens=4, shared_prefix=48))
        for _ in range(5):
            step(watched.scheduler)
            assert watched.accounts.ledger.net() == 0
            seen = max(seen, max((row.references for row in watched.look()), default=0))
        report = watched.audit()
        assert (report.orphaned, report.over_freed, report.exact) == (0, 0, True)
        for other in watched.accounts.others:
            assert other.judge().orphaned == 0
        step(watched.scheduler, worker_meta=finish_jobs(connector))
        assert watched.accounts.ledger.net() == 0
    assert seen > 0, "no transfer was ever under way: the test shows nothing"


def test_a_leak_in_the_connectors_own_pool_is_seen_there() -> None:
    watched: Watched[Pools] = Watched(
        make_connector_scheduler("SimpleCPUOffloadConnector", extra_config=OFFLOAD), Pools
    )
    [row] = watched.look()
    assert (row.pool, row.held, row.orphaned, row.over_freed) == ("cpu_offload", 0, 0, 0)
    watched.accounts.others[0].view.pool.get_new_blocks(4)
    watched.audit()
    [row] = watched.look()
    assert (row.held, row.orphaned, row.over_freed) == (4, 4, 0)
    assert watched.audit().orphaned == 0


def test_a_leak_beside_offload_jobs_is_counted_exactly() -> None:
    watched = watch("SimpleCPUOffloadConnector", extra_config=OFFLOAD)
    watched.scheduler.add_request(make_request(0, 100, max_tokens=8))
    for _ in range(3):
        step(watched.scheduler)
    take(watched, 3)
    assert watched.audit().orphaned == 3


def test_a_store_job_that_never_ends_is_a_pin_with_an_age_not_a_leak() -> None:
    watched = watch("SimpleCPUOffloadConnector", extra_config=OFFLOAD)
    watched.scheduler.add_request(make_request(0, 100, max_tokens=2))
    for _ in range(6):
        step(watched.scheduler)
    watched.look()
    watched.now += 300.0
    assert watched.audit().orphaned == 0
    gpu = next(row for row in watched.look() if row.pool == "gpu")
    assert gpu.references > 0
    assert gpu.oldest_seconds >= 300.0
    assert gpu.known


@pytest.mark.parametrize("name", ["RemoteConnector", "QuietConnector", "ExampleConnector", "NixlConnector"])
def test_connectors_that_never_get_the_pool_pin_nothing(name: str) -> None:
    extra = {"shared_storage_path": "/nonexistent"} if name == "ExampleConnector" else None
    watched = watch(name, extra_config=extra)
    assert watched.accounts.main.view.unknown_pinners == ()
    assert watched.accounts.support.ok
    take(watched, 2)
    assert watched.audit().orphaned == 2


def test_an_unknown_connector_pins_until_it_has_aged() -> None:
    watched = watch("OpaqueConnector")
    assert watched.accounts.main.view.unknown_pinners == ("OpaqueConnector",)
    watched.scheduler.add_request(make_request(0, 100, max_tokens=200))
    step(watched.scheduler)
    blocks = take(watched, 5)
    report = watched.audit()
    assert (report.orphaned, report.pinned) == (0, 5)
    [row] = watched.look()
    assert (row.holder, row.known, row.references, row.orphaned_after_seconds) == ("OpaqueConnector", False, 5, 600.0)
    watched.now += 300.0
    report = watched.audit()
    assert (report.orphaned, report.pinned) == (0, 5)
    watched.now += 301.0
    report = watched.audit()
    assert (report.orphaned, report.pinned) == (5, 0)
    watched.pool.free_blocks(blocks)
    report = watched.audit()
    assert (report.orphaned, report.pinned) == (0, 0)


def test_an_unknown_connector_that_lets_go_in_time_is_never_blamed() -> None:
    watched = watch("OpaqueConnector")
    connector = watched.scheduler.connector
    for _ in range(4):
        blocks = take(watched, 5)
        report = watched.audit()
        assert (report.orphaned, report.pinned) == (0, 5)
        watched.now += 400.0
        watched.audit()
        connector.unpin(blocks)
        assert watched.audit().pinned == 0
        watched.now += 400.0
        assert watched.audit().orphaned == 0


def test_over_freed_blocks_are_loud_with_an_unknown_connector_too() -> None:
    watched = watch("OpaqueConnector")
    watched.scheduler.add_request(make_request(0, 100, max_tokens=200))
    step(watched.scheduler)
    table = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"]
    watched.pool.free_blocks(table[:2])
    assert watched.audit().over_freed == 2


def test_multi_connector_is_looked_through() -> None:
    inner = [
        {"kv_connector": "SimpleCPUOffloadConnector", "kv_role": "kv_both", "kv_connector_extra_config": OFFLOAD},
        {"kv_connector": "ExampleConnector", "kv_role": "kv_both"},
    ]
    watched = watch("MultiConnector", extra_config={"connectors": inner})
    view = watched.accounts.main.view
    assert [pin.holder for pin in view.pins] == ["SimpleCPUOffloadConnector"]
    assert view.unknown_pinners == ()


def test_offloading_connector_keeps_no_reference_of_its_own() -> None:
    watched = watch("OffloadingConnector", extra_config=OFFLOAD)
    connector = watched.scheduler.connector
    for i in range(6):
        watched.scheduler.add_request(make_request(i % 3, 100, max_tokens=3))
        for _ in range(4):
            step(watched.scheduler)
            assert watched.accounts.ledger.net() == 0
        step(watched.scheduler, worker_meta=finish_jobs(connector))
        report = watched.audit()
        assert (report.orphaned, report.over_freed) == (0, 0)


def test_a_store_job_is_never_taken_for_an_earlier_one() -> None:
    """Each is done in the next step: Python may give its place in memory to another, which is no older for that."""
    watched = watch("SimpleCPUOffloadConnector", extra_config=OFFLOAD)
    [source] = watched.accounts.main.view.pins
    keys: list[Any] = []
    for i in range(40):
        watched.scheduler.add_request(make_request(i, 100, max_tokens=2))
        for _ in range(3):
            step(watched.scheduler, worker_meta=finish_jobs(watched.scheduler.connector))
            found = [key for key, _ in source.pinned(watched.pool)]
            assert found == [key for key, _ in source.pinned(watched.pool)], "the key of one job changes"
            keys += found
    assert len(set(keys)) == len(keys) > 30


@pytest.mark.parametrize("form", [list, tuple, iter])
def test_a_touch_is_counted_in_whatever_form_the_blocks_are_passed(form: Any) -> None:
    watched = watch("OpaqueConnector")
    watched.scheduler.add_request(make_request(0, 100, max_tokens=200))
    step(watched.scheduler)
    pool = watched.scheduler.connector.pool
    blocks = watched.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["r0"][:3]
    for _ in range(6):
        pool.touch(form(blocks))
        pool.touch(blocks=form(blocks))
    ledger = watched.accounts.ledger
    assert (ledger.references, ledger.net()) == (ledger.recount(), 36)
    for _ in range(12):
        pool.free_blocks(form(blocks))
    report = watched.audit()
    assert (ledger.net(), report.orphaned, report.over_freed, report.pinned, report.ledger_drift) == (0, 0, 0, 0, 0)


def test_mooncake_store_saves_are_read_from_its_books() -> None:
    """Its scheduler side needs the mooncake package to come up; its books are these two attributes."""
    watched = watch("QuietConnector")

    class MooncakeStoreConnector:
        connector_scheduler = SimpleNamespace(_pinned_saves={7: ([3, 4], 1)}, _gpu_block_pool=watched.pool)

    [source], unknown = find_pins(MooncakeStoreConnector())
    assert isinstance(source, MooncakeStorePins)
    assert unknown == ()
    assert [[block.block_id for block in blocks] for _, blocks in source.pinned(watched.pool)] == [[3, 4]]


def test_all_installed_connectors_are_classified() -> None:
    """Which connectors of this vLLM are handed the pool: a new one must be read before it is called known."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    from engine_hooks.core.pins import _HANDED_THE_POOL

    base = "KVConnectorBase_V1"
    pinners = set()
    for name, load in KVConnectorFactory._registry.items():
        try:
            cls = load()
        except ImportError:
            continue
        own = [b for b in cls.__mro__ if b.__name__ != base and any(n in vars(b) for n in _HANDED_THE_POOL)]
        if own:
            pinners.add(name)
    assert pinners == {"SimpleCPUOffloadConnector", "MooncakeStoreConnector", "MultiConnector", "HiSparseConnector"}


def test_a_view_without_connector_has_no_pins() -> None:
    assert SchedulerView(watch("QuietConnector").scheduler).pins == ()
