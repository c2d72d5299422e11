"""The probe in a process: what it tells, and when."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from engine_hooks.allocator import MIB, HistoryRow, MemoryEvent
from engine_hooks.members import MemberReport
from engine_hooks.torch import probe as probe_module
from engine_hooks.torch.probe import DUTY, WALK_SECONDS
from engine_hooks.torch.summary import summarise
from engine_hooks.wire import MAX_FRAME_BYTES, encode
from tests.bed.fake_torch import FakeTorch
from tests.bed.snapshots import AllocatorBed, server_like
from tests.unit.probes import make_probe, many_sites, sent


@pytest.fixture(autouse=True)
def _no_walk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk during which a busy machine did something else for 10 ms would make the next one come later."""
    monkeypatch.setattr(probe_module, "DUTY", 100.0)


def test_without_torch_or_cuda_it_says_so_and_gives_no_number(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    probe = make_probe()
    assert probe.row(0.0).reason == "no CUDA in this process: torch is not loaded"
    assert "torch" not in sys.modules
    put(FakeTorch(without=["_cuda_memoryStats"]))
    assert probe.row(1.0).reason == "no CUDA in this process: this torch was built without it"
    torch = put(FakeTorch(ready=False))
    row = probe.row(2.0)
    assert row.reason == "no CUDA in this process: nothing has used it yet"
    assert (row.devices, row.walk, row.fields) == ((), None, 0)
    assert (torch.walks, torch.observers) == ([], []), "nothing may be asked before: some calls would begin to use it"
    torch.ready = True
    assert probe.row(3.0).reason == ""


def test_counters_each_time_and_a_walk_each_five_seconds(put: Any) -> None:
    torch = put(FakeTorch())
    torch.empty(30 * MIB)
    probe = make_probe()
    rows = [probe.row(float(second)) for second in range(12)]
    assert [row.devices[0].allocated_bytes for row in rows] == [30 * MIB] * 12
    assert [row.walk is not None for row in rows] == [second % 5 == 0 for second in range(12)]
    assert torch.walks == [False] * 3, "never with traces"
    assert (rows[0].backend, rows[0].devices[0].uuid, rows[0].expandable_segments) == ("native", "GPU-0000-0", False)
    assert rows[0].unsupported == {}


def test_a_slow_walk_is_made_rarely_and_says_so(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = put(FakeTorch())
    now = [100.0]

    def slow(asked: Any) -> Any:
        now[0] += 0.05
        return {"segments": []}

    torch._C._cuda_memorySnapshot = slow
    monkeypatch.setattr(probe_module, "DUTY", DUTY)
    monkeypatch.setattr(probe_module.time, "monotonic", lambda: now[0])
    probe = make_probe()
    walk = probe.row(0.0).walk
    assert walk is not None
    assert walk.seconds == pytest.approx(0.05)
    assert walk.period_seconds == pytest.approx(0.05 / DUTY)
    assert probe.row(24.9).walk is None
    assert probe.row(25.1).walk is not None
    assert WALK_SECONDS < 25.0


def test_only_devices_with_a_context_are_told(put: Any) -> None:
    torch = put(FakeTorch(AllocatorBed(0), AllocatorBed(1)))
    torch.contexts = {1}
    assert [row.device for row in make_probe().row(0.0).devices] == [1]
    torch = put(FakeTorch(AllocatorBed(0), AllocatorBed(1), without=["_cuda_hasPrimaryContext"]))
    torch.empty(MIB, device=1)
    assert [row.device for row in make_probe().row(0.0).devices] == [1]


def test_a_torch_that_cannot_leave_traces_out_is_not_walked_while_it_records(put: Any) -> None:
    torch = put(FakeTorch(flags=False))
    probe = make_probe()
    assert probe.row(0.0).walk is not None
    torch.recording = True
    row = probe.row(5.0)
    assert row.walk is None
    assert "history is on" in row.unsupported["walk"]
    torch.recording = False
    assert probe.row(10.0).unsupported == {}
    put(FakeTorch(flags=False, without=["_cuda_isHistoryEnabled"]))
    assert make_probe().row(0.0).walk is None, "not known is not no"


@pytest.mark.parametrize("backend", ["cudaMallocAsync", "pluggable"])
def test_another_allocator_is_told_as_such(put: Any, backend: str) -> None:
    torch = put(FakeTorch(backend=backend))
    row = make_probe().row(0.0)
    assert row.backend == backend
    assert {name: backend in why for name, why in row.unsupported.items()} == {
        "walk": True,
        "observer": True,
        "counters": True,
    }
    assert torch.observers == []
    assert all(device.retries_total is None for device in row.devices)


def test_a_torch_without_an_observer_is_probed_all_the_same(put: Any) -> None:
    put(FakeTorch(without=["_cuda_attach_out_of_memory_observer", "_cuda_getAllocatorBackend"]))
    row = make_probe().row(0.0)
    assert row.unsupported == {"observer": "this torch has no observer of failed allocations"}
    assert (row.backend, len(row.devices)) == ("native", 1)


def test_what_keeps_raising_is_switched_off_and_the_rest_goes_on(put: Any) -> None:
    torch = put(FakeTorch())
    torch._C._cuda_memorySnapshot = lambda _asked: 1 / 0
    probe = make_probe()
    rows = [probe.row(second * 5.0) for second in range(7)]
    assert all(row.devices for row in rows)
    assert "ZeroDivisionError" in rows[-1].unsupported["walk"]


def test_the_frame_is_small_each_second_and_never_too_large(put: Any) -> None:
    beds = [server_like(steps=300) for _ in range(8)]
    for number, bed in enumerate(beds):
        bed.device = number
        for pool in range(20):
            bed.alloc(30 * MIB, pool=(0, pool + 1))
    put(FakeTorch(*beds))
    probe = make_probe()
    walked, plain = probe.row(0.0), probe.row(1.0)
    assert len(encode(MemberReport(monotonic=0.0, resident_bytes=0, allocator=plain))) < 8 * 1024
    events = tuple(
        MemoryEvent(sequence=n, kind="oom", at=0.0, message="x" * 1000, snapshot="/" * 512) for n in range(6)
    )
    history = HistoryRow(sequence=1, started_at=0.0, seconds=1.0, sites=summarise([many_sites()]).sites)
    full = MemberReport(monotonic=0.0, resident_bytes=0, allocator=walked, events=events, history=history)
    assert len(encode(full)) < MAX_FRAME_BYTES
    assert sent(full) == full
