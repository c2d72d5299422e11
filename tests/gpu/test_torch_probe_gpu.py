"""The torch probe on a GPU: the few lines that touch torch, and what they give, against allocations of known sizes.

Needs torch with CUDA, msgspec and pytest, nothing else: python -m pytest tests/gpu
"""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU here", allow_module_level=True)

from agent.oom.judge import judge  # noqa: E402
from engine_hooks.allocator import MIB, AllocatorRow, SegmentsRow  # noqa: E402
from engine_hooks.settings import Settings  # noqa: E402
from engine_hooks.torch.cuda import Cuda  # noqa: E402
from engine_hooks.torch.probe import Probe  # noqa: E402


class Speaker:
    """Remembers on which thread it was told to speak."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def speak(self) -> bool:
        self.threads.append(threading.get_ident())
        return True

    def connecting(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    torch.cuda.init()
    gc.collect()
    torch.cuda.empty_cache()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    gc.collect()
    torch.cuda.empty_cache()


def make_probe(**env: str) -> Probe:
    return Probe(Settings.from_environment(env))


def tensor(size: int) -> Any:
    return torch.empty(size, dtype=torch.uint8, device="cuda:0")


def segments(row: AllocatorRow) -> SegmentsRow:
    assert row.walk is not None, row.unsupported
    return next(found for found in row.walk.devices if found.device == 0)


def test_before_cuda_is_used_nothing_is_asked() -> None:
    """In a process of its own: this one has used it."""
    import subprocess
    import sys

    script = (
        "import torch; from engine_hooks.settings import Settings; from engine_hooks.torch.probe import Probe\n"
        "row = Probe(Settings.from_environment({})).row(0.0)\n"
        "assert 'nothing has used it yet' in row.reason, row\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[2], timeout=120)


def test_counters_follow_an_allocation_to_the_byte() -> None:
    probe = make_probe()
    before = probe.row(0.0)
    assert (before.reason, before.backend) == ("", "native")
    assert before.fields >= 15
    held = tensor(512 * MIB)
    after = probe.row(1.0)
    grown = after.devices[0], before.devices[0]
    assert grown[0].allocated_bytes - grown[1].allocated_bytes == 512 * MIB
    assert grown[0].reserved_bytes - grown[1].reserved_bytes == 512 * MIB
    assert grown[0].uuid.startswith("GPU-")
    del held
    assert probe.row(2.0).devices[0].allocated_bytes == grown[1].allocated_bytes


def test_devices_without_a_context_are_not_told() -> None:
    told = [device.device for device in make_probe().row(0.0).devices]
    assert told == [0], "only device 0 has been used here"


def test_a_walk_finds_free_blocks_private_pools_and_what_it_costs() -> None:
    probe = make_probe()
    kept = [tensor(20 * MIB) for _ in range(20)]
    del kept[::2]
    graph_input = torch.zeros(1024, 1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = graph_input @ graph_input
    row = probe.row(0.0)
    found = segments(row)
    stats = row.devices[0]
    assert found.reserved_bytes == stats.reserved_bytes
    assert found.active_bytes == stats.active_bytes
    assert found.free_bytes >= 10 * 20 * MIB
    assert sum(found.band_bytes) == found.free_bytes
    assert sum(pool.reserved_bytes for pool in found.private) > 0, "the graph's pool"
    if stats.private_reserved_bytes is not None:
        assert stats.private_reserved_bytes == sum(pool.reserved_bytes for pool in found.private)
    assert row.walk is not None
    assert 0 < row.walk.seconds < 1.0
    assert row.walk.seconds <= 0.0021 * row.walk.period_seconds
    del result, graph


def test_ten_thousand_blocks_are_walked_within_the_duty() -> None:
    probe = make_probe()
    held = [tensor(600) for _ in range(10_000)]
    row = probe.row(0.0)
    assert segments(row).blocks >= 10_000
    assert row.walk is not None
    print(
        f"walk of {segments(row).blocks} blocks: {row.walk.seconds * 1000:.2f} ms, next in {row.walk.period_seconds} s"
    )
    assert row.walk.seconds <= 0.0021 * row.walk.period_seconds
    del held


def test_a_failed_allocation_is_observed_written_and_judged(tmp_path: Path) -> None:
    probe, speaker = make_probe(KVTIDE_SNAPSHOT_DIR=str(tmp_path)), Speaker()
    probe.claim(speaker)
    probe.row(0.0)
    torch.cuda.set_per_process_memory_fraction(0.05)
    limit = int(torch.cuda.get_device_properties(0).total_memory * 0.05)
    with pytest.raises(torch.cuda.OutOfMemoryError) as caught:
        tensor(2 * limit)
    assert speaker.threads == [threading.get_ident()], "told before the exception, on the thread that failed"
    probe.caught("execute_model", caught.value)
    (event,) = probe.events.all()
    assert (event.kind, event.device, event.count) == ("oom", 0, 1)
    assert event.requested_bytes is not None
    assert event.requested_bytes >= 2 * limit
    assert event.limit_bytes == pytest.approx(limit, rel=0.01)
    assert "Tried to allocate" in event.message
    content = json.loads(Path(event.snapshot).read_bytes())
    assert {"segments", "device_traces"} <= set(content)
    assert content["device_traces"][0][0]["action"] == "oom"
    judged = judge(event.message, event)
    assert judged is not None
    print(judged)
    assert judged.cause == "unusable", "the device has room, this process may not take it"
    assert probe.row(1.0).devices[0].ooms_total


def test_fragmented_memory_is_judged_so() -> None:
    probe = make_probe()
    probe.row(0.0)
    held = [tensor(20 * MIB) for _ in range(64)]
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 8 * MIB) / total)
    # Every other half of a segment stays, so that none can be given back.
    halves = []
    for index in range(len(held)):
        held[index] = None
        halves.append(tensor(11 * MIB))
    with pytest.raises(torch.cuda.OutOfMemoryError):
        tensor(200 * MIB)
    (event,) = probe.events.all()
    assert event.free_bytes is not None
    assert event.free_bytes >= 200 * MIB > event.largest_free_bytes
    judged = judge("", event)
    assert judged is not None
    print(judged)
    del halves


def test_a_recording_of_short_lived_allocations() -> None:
    probe = make_probe(KVTIDE_HISTORY="1")
    assert probe.record(1.0, 0.0) == ""
    for _ in range(100):
        tensor(4 * MIB)
    held = tensor(8 * MIB)
    probe.tick(1.0)
    assert Cuda().recording() is False
    _, row = probe.news(everything=False, again=False)
    assert row is not None
    assert row.reason == ""
    assert row.allocations == 101
    assert row.short_lived == 100
    assert row.still_held_bytes >= 8 * MIB
    assert any("test_torch_probe_gpu.py" in site.site for site in row.sites)
    print(f"read in {row.read_seconds * 1000:.1f} ms, {row.entries} entries")
    del held


def test_the_probe_waits_for_nobody() -> None:
    """A busy device must not hold the side thread up: nothing in it synchronises."""
    probe = make_probe()
    probe.row(0.0)
    left = torch.randn(8192, 8192, device="cuda")
    for _ in range(50):
        left = left @ left
        left = left / left.norm()
    event = torch.cuda.Event()
    event.record()
    began = time.perf_counter()
    probe.row(10.0)
    took = time.perf_counter() - began
    busy = not event.query()
    torch.cuda.synchronize()
    print(f"row with walk while the device was {'busy' if busy else 'idle'}: {took * 1000:.2f} ms")
    assert busy, "the device had finished before it could be seen: give it more to do"


def test_children_that_are_forked_are_left_alone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if Cuda().absent() else 1)
    assert os.waitpid(pid, 0)[1] == 0
