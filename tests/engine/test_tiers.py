"""Offload tiers of vLLM's own connectors: their real scheduler side in a real scheduler."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_hooks.core.observers import UnsupportedError
from engine_hooks.core.tiers import jobs as tier_jobs
from engine_hooks.core.tiers.observer import STUCK_AFTER_SECONDS, TiersObserver
from engine_hooks.detail import TierRow
from tests.bed.connectors import block_bytes, finish_jobs, make_connector_scheduler, step
from tests.bed.scheduler import make_request
from tests.engine.observing import Watched

HOST_BLOCKS = 40
HOST = {"cpu_bytes_to_use": HOST_BLOCKS * block_bytes()}


class Tiers(Watched[TiersObserver]):
    """A scheduler with a connector, and its tiers observer."""

    def __init__(self, name: str, extra_config: dict[str, Any], **options: Any) -> None:
        super().__init__(make_connector_scheduler(name, extra_config=extra_config, **options), TiersObserver)
        self.connector = self.scheduler.connector

    def look(self, seconds: float = 1.0) -> tuple[TierRow, ...]:
        """The rows ``seconds`` later."""
        self.now += seconds
        rows: tuple[TierRow, ...] = super().look()
        return rows

    def one(self, seconds: float = 1.0) -> TierRow:
        """The only row."""
        (row,) = self.look(seconds)
        return row

    def run(self, request: Any) -> None:
        """Run a request to its end; the workers report no transfer."""
        self.scheduler.add_request(request)
        while not request.is_finished():
            step(self.scheduler)
        step(self.scheduler)

    def forget_gpu(self) -> None:
        """Drop the GPU's own copies, so that the next hit is the tier's."""
        assert self.scheduler.reset_prefix_cache()


def test_a_store_is_under_way_until_the_workers_say_that_it_is_done() -> None:
    watched = Tiers("SimpleCPUOffloadConnector", HOST)
    empty = watched.one()
    assert (empty.tier, empty.capacity, empty.used, empty.pending, empty.oldest_seconds) == (
        "host",
        HOST_BLOCKS - 1,
        0,
        0,
        None,
    )
    watched.run(make_request(0, 64, 4))
    row = watched.one()
    assert (row.used, row.pending, row.oldest_seconds, row.stuck) == (4, 1, 0.0, 0)
    assert watched.one(STUCK_AFTER_SECONDS).stuck == 0
    late = watched.one()
    assert (late.stuck, late.oldest_seconds) == (1, STUCK_AFTER_SECONDS + 1.0)
    step(watched.scheduler, worker_meta=finish_jobs(watched.connector))
    row = watched.one()
    assert (row.used, row.pending, row.stuck, row.oldest_seconds) == (0, 0, 0, None)


def test_a_load_that_never_ends_is_stuck_and_one_that_ends_is_not() -> None:
    watched = Tiers("SimpleCPUOffloadConnector", HOST)
    watched.run(make_request(0, 64, 4))
    step(watched.scheduler, worker_meta=finish_jobs(watched.connector))
    watched.forget_gpu()
    watched.scheduler.add_request(make_request(0, 64, 4))
    step(watched.scheduler)
    assert watched.one().pending == 1
    assert watched.one(STUCK_AFTER_SECONDS + 1.0).stuck == 1
    step(watched.scheduler, received=["r0"])
    row = watched.one()
    assert (row.pending, row.stuck) == (0, 0)


def test_an_abandoned_store_goes_on_with_its_age() -> None:
    watched = Tiers("SimpleCPUOffloadConnector", HOST)
    watched.run(make_request(0, 64, 4))
    watched.one()
    watched.connector.reset_cache()
    row = watched.one(50.0)
    assert (row.pending, row.abandoned, row.oldest_seconds, row.used) == (1, 1, 50.0, 4)
    step(watched.scheduler, worker_meta=finish_jobs(watched.connector))
    row = watched.one()
    assert (row.pending, row.abandoned, row.used) == (0, 0, 0)


def test_many_short_jobs_are_never_stuck() -> None:
    watched = Tiers("SimpleCPUOffloadConnector", HOST)
    for i in range(30):
        watched.run(make_request(i, 64, 4))
        row = watched.one(10.0)
        assert (row.pending, row.stuck) == (1, 0)
        step(watched.scheduler, worker_meta=finish_jobs(watched.connector))
        assert watched.one().pending == 0


def test_a_disk_behind_the_same_connector_is_called_so(tmp_path: Path) -> None:
    disk = {
        "kv_offload_backend": "disk",
        "disk_path": str(tmp_path),
        "disk_capacity_bytes": 10 * block_bytes(),
    }
    row = Tiers("SimpleCPUOffloadConnector", HOST | disk).one()
    assert (row.tier, row.capacity) == ("disk", 9)


def test_chunks_of_the_offloading_connector_count_as_blocks() -> None:
    watched = Tiers("OffloadingConnector", HOST | {"blocks_per_chunk": 2})
    watched.run(make_request(0, 64, 4))
    row = watched.one()
    assert (row.tier, row.capacity, row.used, row.cached, row.pending) == ("host", HOST_BLOCKS, 4, 0, 1)
    step(watched.scheduler, worker_meta=finish_jobs(watched.connector))
    row = watched.one()
    assert (row.used, row.cached, row.pending) == (0, 4, 0)
    watched.forget_gpu()
    watched.scheduler.add_request(make_request(0, 65, 4))
    step(watched.scheduler)
    row = watched.one()
    assert (row.used, row.cached, row.pending) == (4, 0, 1)
    assert watched.one(STUCK_AFTER_SECONDS + 1.0).stuck == 1
    step(watched.scheduler, received=["r0"], worker_meta=finish_jobs(watched.connector))
    assert watched.one().pending == 0


@pytest.fixture
def tiering(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Tiers]:
    """Host memory with a folder of files behind it, whose threads run for real."""
    config = HOST | {
        "spec_name": "TieringOffloadingSpec",
        "secondary_tiers": [{"type": "fs", "root_dir": str(tmp_path), "n_read_threads": 1, "n_write_threads": 1}],
    }
    watched = Tiers("OffloadingConnector", config, engine_id=f"kvtide-{uuid.uuid4()}")
    yield watched
    watched.connector.shutdown()


def test_tiers_behind_host_memory_have_rows_with_their_own_jobs(tiering: Tiers) -> None:
    tiering.run(make_request(0, 64, 4))
    host, files = tiering.look()
    assert (host.tier, host.used, host.pending) == ("host", 4, 1)
    assert (files.tier, files.capacity, files.used, files.pending) == ("fs", None, None, 0)
    manager = tiering.connector.connector_scheduler.manager
    manager._process_finished_jobs = lambda: None  # the files are written, and nobody takes note
    step(tiering.scheduler, worker_meta=finish_jobs(tiering.connector))
    step(tiering.scheduler)
    (job,) = manager._jobs.values()
    tiering.now = job.transfer_job.submit_time
    host, files = tiering.look(5.0)
    assert (host.pending, files.pending, files.oldest_seconds, files.stuck) == (0, 1, 5.0, 0)
    assert tiering.look(STUCK_AFTER_SECONDS)[1].stuck == 1
    del manager._process_finished_jobs
    while manager._jobs:
        manager._process_finished_jobs()
    assert [row.pending for row in tiering.look()] == [0, 0]


def test_connectors_inside_a_multi_connector_are_read_and_told_apart() -> None:
    def child(name: str, config: dict[str, Any]) -> dict[str, Any]:
        return {"kv_connector": name, "kv_role": "kv_both", "kv_connector_extra_config": config}

    children = [
        child("NixlConnector", {}),
        child("SimpleCPUOffloadConnector", HOST),
        child("OffloadingConnector", {"cpu_bytes_to_use": 10 * block_bytes()}),
    ]
    rows = Tiers("MultiConnector", {"connectors": children}).look()
    assert [(row.tier, row.capacity) for row in rows] == [("host", HOST_BLOCKS - 1), ("host 2", 10)]


def test_only_so_many_jobs_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier_jobs, "MAX_JOBS", 2)
    watched = Tiers("SimpleCPUOffloadConnector", HOST)
    for i in range(3):
        watched.run(make_request(i, 64, 4))
    row = watched.one()
    assert (row.pending, row.unseen) == (3, 1)


@pytest.mark.parametrize("name", ["NixlConnector", "ExampleConnector", "RemoteConnector", "OpaqueConnector"])
def test_a_connector_without_a_tier_that_can_be_read_is_unsupported_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"the scheduler's side of \w+Connector shows no offload tier"):
        Tiers(name, {"shared_storage_path": str(tmp_path)})


def test_without_a_connector_there_is_no_tier() -> None:
    from tests.bed.scheduler import make_scheduler

    with pytest.raises(UnsupportedError, match="no KV connector"):
        Watched(make_scheduler(), TiersObserver)
