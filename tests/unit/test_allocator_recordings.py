"""Recordings of allocations: allowed, bounded, summed up."""

from __future__ import annotations

from typing import Any

from engine_hooks.allocator import MAX_SITES, MIB
from engine_hooks.torch.recording import MAX_ENTRIES, MAX_SECONDS
from engine_hooks.torch.summary import site_of, summarise
from tests.bed.fake_torch import FakeTorch
from tests.bed.snapshots import AllocatorBed, stacks
from tests.unit.probes import Speaker, make_probe, many_sites


def test_a_recording_is_refused_unless_the_process_allows_it(put: Any) -> None:
    torch = put(FakeTorch())
    assert make_probe().record(10.0, 0.0) == "KVTIDE_HISTORY is not set in this process's environment"
    probe = make_probe(KVTIDE_HISTORY="1")
    assert probe.record(-1.0, 0.0) == "a recording of -1 s"
    assert probe.record(float("nan"), 0.0).startswith("a recording")
    torch.ready = False
    assert "no CUDA" in probe.record(10.0, 0.0)
    torch.ready, torch.recording = True, True
    assert probe.record(10.0, 0.0) == "this process records a history of its own"
    torch.recording, torch.backend = False, "cudaMallocAsync"
    assert "records no history" in probe.record(10.0, 0.0)
    torch.backend = "native"
    torch.cuda.memory._record_memory_history = lambda enabled=True: None
    assert probe.record(10.0, 0.0) == "this torch can't bound its history"
    assert not torch.recording


def test_a_recording_is_bounded_ends_by_itself_and_is_summed_up(put: Any) -> None:
    bed = AllocatorBed()
    torch = put(FakeTorch(bed))
    probe = make_probe(KVTIDE_HISTORY="1")
    assert probe.record(1e9, 0.0) == ""
    assert torch.recorded_with == {"context": "alloc", "stacks": "python", "max_entries": MAX_ENTRIES}
    assert "one is running" in probe.record(5.0, 1.0)
    (site,) = stacks(1)
    for _ in range(10):
        bed.free(bed.alloc(20 * MIB, site))
    bed.alloc(5 * MIB, site)
    probe.tick(MAX_SECONDS - 1)
    assert torch.recording
    probe.tick(MAX_SECONDS)
    assert not torch.recording
    _, row = probe.news(everything=False, again=False)
    assert row is not None
    assert (row.seconds, row.allocations, row.allocated_bytes) == (MAX_SECONDS, 11, 205 * MIB)
    assert (row.short_lived, row.short_lived_bytes, row.still_held_bytes) == (10, 200 * MIB, 5 * MIB)
    assert [(s.site, s.allocations) for s in row.sites] == [("model_executor/layers/op_0.py:10 forward_0", 11)]
    assert (row.reason, row.full) == ("", False)
    assert probe.record(5.0, MAX_SECONDS + 1) == ""


def test_a_recording_ends_with_who_would_tell_of_it(put: Any) -> None:
    torch = put(FakeTorch())
    probe, speaker = make_probe(KVTIDE_HISTORY="1"), Speaker()
    probe.claim(speaker)
    probe.record(60.0, 0.0)
    probe.release(speaker)
    assert not torch.recording


def test_a_recording_that_cannot_be_read_is_switched_off_and_told(put: Any) -> None:
    torch = put(FakeTorch())
    probe = make_probe(KVTIDE_HISTORY="1")
    probe.record(5.0, 0.0)
    torch.cuda.memory._snapshot = lambda: 1 / 0
    probe.tick(5.0)
    assert not torch.recording
    _, row = probe.news(everything=False, again=False)
    assert row is not None
    assert "ZeroDivisionError" in row.reason


def test_lines_that_allocate_most_bytes_and_most_often() -> None:
    found = summarise([many_sites()])
    assert found.allocations == 5050
    assert len(found.sites) == MAX_SITES
    by_bytes = {"op_50.py:60", "op_49.py:59"}  # (n + 1)(100 - n) is largest in the middle
    assert by_bytes <= {row.site.split("/")[-1].split()[0] for row in found.sites}
    assert any("op_0.py" in row.site and row.allocations == 100 for row in found.sites)
    assert [row.bytes for row in found.sites] == sorted((row.bytes for row in found.sites), reverse=True)


def test_what_is_freed_late_or_without_times_is_not_short_lived() -> None:
    def trace(*times: int | None) -> list[dict[str, Any]]:
        entries = [("alloc", times[0]), ("free_requested", times[1]), ("free_completed", times[1])]
        return [
            {"action": action, "addr": 7, "size": 5} | ({} if time is None else {"time_us": time})
            for action, time in entries
        ]

    assert summarise([trace(0, 99_999)]).short_lived == 1
    assert summarise([trace(0, 100_000)]).short_lived == 0
    assert summarise([trace(None, None)]).short_lived is None
    assert summarise([trace(0, 1)[1:]]).allocations == 0, "its allocation was before"


def test_a_site_is_the_first_line_that_is_not_torchs() -> None:
    def frame(filename: str) -> dict[str, Any]:
        return {"filename": filename, "line": 3, "name": "f"}

    assert site_of([frame("/x/torch/nn/a.py"), frame("/a/b/c/d.py")]) == "b/c/d.py:3 f"
    assert site_of([frame("/x/torch/nn/a.py")]) == "torch/nn/a.py:3 f"
    assert site_of([]) == "unknown"
    assert site_of([frame("/a/\x1b.py")]).isprintable()
