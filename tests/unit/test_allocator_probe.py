"""The probe in a process: what it tells, when, what it does while an allocation fails, and that it never does harm."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from engine_hooks.allocator import MAX_EVENTS, MAX_HEAD, MAX_SITES, MIB, HistoryRow, MemoryEvent
from engine_hooks.members import MemberReport
from engine_hooks.settings import Settings
from engine_hooks.torch import probe as probe_module
from engine_hooks.torch.errors import classify
from engine_hooks.torch.events import Events
from engine_hooks.torch.probe import DUTY, WALK_SECONDS, Probe, of_process
from engine_hooks.torch.recording import MAX_ENTRIES, MAX_SECONDS
from engine_hooks.torch.snapshots import MAX_BLOCKS, MAX_FILES, OFF
from engine_hooks.torch.summary import site_of, summarise
from engine_hooks.wire import MAX_FRAME_BYTES, decode, encode
from tests.bed.fake_torch import FakeTorch, OutOfMemoryError
from tests.bed.snapshots import AllocatorBed, server_like, stacks


class Speaker:
    """Counts how often it was told to speak, and by whom."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.still = 0

    def speak(self) -> bool:
        self.threads.append(threading.get_ident())
        return True

    def connecting(self) -> bool:
        self.still -= 1
        return self.still >= 0


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Any:
    def put(torch: FakeTorch) -> FakeTorch:
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    return put


def make_probe(**env: str) -> Probe:
    return Probe(Settings.from_environment(env))


def sent(report: MemberReport) -> MemberReport:
    """What arrives of it: the agent refuses what is out of bounds."""
    found = decode(encode(report))
    assert isinstance(found, MemberReport)
    return found


# -- what it tells ----------------------------------------------------------------------------------------


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


# -- what fails -------------------------------------------------------------------------------------------


def fail(torch: FakeTorch, size: int = 400 * MIB) -> OutOfMemoryError:
    with pytest.raises(OutOfMemoryError) as caught:
        torch.empty(size)
    return caught.value


def crowded() -> FakeTorch:
    """900 of 1024 MiB reserved, 300 of them free in blocks of 20 MiB at most."""
    bed = AllocatorBed(capacity=1024 * MIB)
    blocks = [bed.alloc(20 * MIB) for _ in range(45)]
    for block in blocks[::3]:
        bed.free(block)
    return FakeTorch(bed)


def test_a_failed_allocation_is_told_at_once_from_the_thread_that_failed(put: Any) -> None:
    torch, probe, speaker = put(crowded()), make_probe(), Speaker()
    assert probe.claim(speaker)
    probe.row(0.0)
    probe.row(1.0)
    assert len(torch.observers) == 1
    fail(torch)
    assert speaker.threads == [threading.get_ident()]
    (event,) = probe.events.all()
    assert (event.kind, event.device, event.requested_bytes) == ("oom", 0, 400 * MIB)
    assert (event.limit_bytes, event.device_free_bytes) == (1024 * MIB, 124 * MIB)
    assert (event.reserved_bytes, event.allocated_bytes) == (900 * MIB, 600 * MIB)
    assert (event.free_bytes, event.largest_free_bytes) == (300 * MIB, 20 * MIB)
    assert event.snapshot == OFF
    assert sent(MemberReport(monotonic=0.0, resident_bytes=None, events=(event,))).events == (event,)


def test_the_exception_adds_its_words_to_what_the_observer_told(put: Any) -> None:
    torch, probe = put(crowded()), make_probe()
    probe.row(0.0)
    error = fail(torch)
    probe.caught("execute_model", error)
    probe.caught("an outer wrapper", error)
    try:
        raise RuntimeError("the engine's own words") from error
    except RuntimeError as outer:
        probe.caught("outermost", outer)
    (event,) = probe.events.all()
    assert (event.where, event.count) == ("execute_model", 1)
    assert event.message.startswith("OutOfMemoryError: CUDA out of memory. Tried to allocate 400.00 MiB.")
    assert event.free_bytes == 300 * MIB


def test_an_error_that_may_end_the_process_waits_for_a_link_that_is_being_made(put: Any) -> None:
    put(FakeTorch())
    for patience, asked in ((30.0, -1), (0.0, 2)):
        probe, speaker = make_probe(), Speaker()
        probe.claim(speaker)
        speaker.still = 3
        probe.caught("load_model", RuntimeError("CUDA error: x"), patience)
        assert len(speaker.threads) == 1
        assert speaker.still == asked


def test_the_same_again_is_counted_and_another_is_another(put: Any) -> None:
    torch, probe = put(crowded()), make_probe()
    probe.row(0.0)
    for _ in range(3):
        probe.caught("execute_model", fail(torch))
    fail(torch, 500 * MIB)
    assert [(e.requested_bytes, e.count) for e in probe.events.all()] == [(400 * MIB, 3), (500 * MIB, 1)]
    for size in range(600, 620):
        fail(torch, size * MIB)
    assert len(probe.events.all()) == MAX_EVENTS


def test_news_are_told_once_more_with_walks_and_to_an_agent_that_has_just_come(put: Any) -> None:
    torch, probe = put(crowded()), make_probe()
    probe.row(0.0)
    assert probe.news(everything=True, again=True) == ((), None)
    fail(torch)  # nobody speaks for the process: it waits
    assert len(probe.news(everything=False, again=False)[0]) == 1
    assert probe.news(everything=False, again=False) == ((), None)
    assert len(probe.news(everything=False, again=True)[0]) == 1
    assert len(probe.news(everything=True, again=False)[0]) == 1


def test_one_of_several_members_speaks_and_another_when_it_has_gone(put: Any) -> None:
    put(FakeTorch())
    probe, first, second = make_probe(), Speaker(), Speaker()
    assert [probe.claim(first), probe.claim(second), probe.claim(first)] == [True, False, True]
    probe.release(second)
    assert not probe.claim(second)
    assert not probe.claim(second), "it has said that it ends"
    third = Speaker()
    probe.release(first)
    assert probe.claim(third)
    del third
    assert probe.claim(Speaker()), "one that is gone without a word is no reason to be silent"


def test_a_process_has_one_probe_and_a_child_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "_probes", [])
    settings = Settings.from_environment({})
    assert of_process(settings) is of_process(settings)
    parents = of_process(settings)
    monkeypatch.setattr(os, "getpid", lambda: parents.pid + 1)
    assert of_process(settings) is not parents


def test_nothing_that_goes_wrong_in_the_observer_reaches_the_program(put: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch, probe = put(crowded()), make_probe()
    probe.row(0.0)
    torch._C._cuda_memorySnapshot = torch._C._cuda_memoryStats = lambda *_: 1 / 0
    fail(torch)
    (event,) = probe.events.all()
    assert (event.requested_bytes, event.reserved_bytes, event.free_bytes) == (400 * MIB, None, None)
    monkeypatch.setattr(probe.events, "observed", lambda _event: 1 / 0)
    for _ in range(10):
        fail(torch)


def test_the_segments_are_written_for_a_reader_of_snapshots(put: Any, tmp_path: Path) -> None:
    torch, folder = put(crowded()), tmp_path / "made"
    probe = make_probe(KVTIDE_SNAPSHOT_DIR=str(folder))
    probe.row(0.0)
    fail(torch)
    (path,) = folder.iterdir()
    assert probe.events.all()[0].snapshot == str(path)
    assert path.stat().st_mode & 0o777 == 0o600
    content = json.loads(path.read_bytes())
    assert len(content["segments"]) == 45
    assert {len(segment["blocks"]) for segment in content["segments"]} == {1}
    assert set(content["segments"][0]["blocks"][0]) == {"address", "size", "requested_size", "state"}
    ((failure,),) = content["device_traces"]
    assert (failure["action"], failure["size"], failure["device_free"]) == ("oom", 400 * MIB, 124 * MIB)
    fail(torch, 500 * MIB)
    assert len(list(folder.iterdir())) == 1, "not another within half a minute"
    assert "was written less than" in probe.events.all()[-1].snapshot


def test_a_written_snapshot_can_be_read(put: Any, tmp_path: Path) -> None:
    from agent.snapshot.read import read

    torch = put(crowded())
    probe = make_probe(KVTIDE_SNAPSHOT_DIR=str(tmp_path))
    probe.row(0.0)
    fail(torch)
    (path,) = tmp_path.iterdir()
    assert sum(segment.size for segment in read(path).segments) == 900 * MIB


def test_old_snapshots_make_room_and_other_files_stay(put: Any, tmp_path: Path) -> None:
    for number in range(MAX_FILES + 3):
        old = tmp_path / f"kvtide-oom-{number}-1.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    (tmp_path / "mine.json").write_text("{}")
    torch = put(crowded())
    probe = make_probe(KVTIDE_SNAPSHOT_DIR=str(tmp_path))
    probe.row(0.0)
    fail(torch)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == MAX_FILES + 1
    assert "mine.json" in names
    assert "kvtide-oom-3-1.json" not in names
    assert "kvtide-oom-4-1.json" in names


def test_a_huge_snapshot_is_cut_and_says_so(put: Any, tmp_path: Path) -> None:
    bed = AllocatorBed(capacity=1024 * MIB)
    bed.alloc(MIB)
    torch = put(FakeTorch(bed))
    one = bed.snapshot()["segments"][0]
    huge = one | {"blocks": one["blocks"] * (MAX_BLOCKS // len(one["blocks"]))}
    torch._C._cuda_memorySnapshot = lambda _asked: {"segments": [huge, one, one]}
    probe = make_probe(KVTIDE_SNAPSHOT_DIR=str(tmp_path))
    probe.row(0.0)
    fail(torch, 2048 * MIB)
    (path,) = tmp_path.iterdir()
    content = json.loads(path.read_bytes())
    assert (len(content["segments"]), content["segments_left_out"]) == (1, 2)


def test_a_folder_that_cannot_be_written_is_told(put: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    torch = put(crowded())
    probe = make_probe(KVTIDE_SNAPSHOT_DIR=str(tmp_path / "file"))
    probe.row(0.0)
    fail(torch)
    assert probe.events.all()[0].snapshot.startswith("KVTIDE_SNAPSHOT_DIR: ")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be", "illegal_address"),
        ("CUDA error: unspecified launch failure", "launch_failure"),
        ("CUDA error: device-side assert triggered", "device_assert"),
        ("CUDA error: uncorrectable ECC error encountered", "ecc"),
        ("CUDA error: uncorrectable NVLink error detected during the execution", "nvlink"),
        ("CUDA error: misaligned address", "misaligned_address"),
        ("CUDA error: an illegal instruction was encountered", "illegal_instruction"),
        ("CUDA error: the launch timed out and was terminated", "launch_timeout"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "device_lost"),
        ("NCCL error in: ProcessGroupNCCL.cpp:1, remote process exited", "collective"),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx", "library"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "oom"),
        ("CUDA driver error: device not ready", "driver"),
        ("HIP error: invalid device function", "driver"),
        ("No available memory for the cache blocks.", "memory"),
        ("shape '[2, 3]' is invalid for input of size 5", None),
        ("the tokenizer ran out of memory slots", None),
    ],
)
def test_errors_are_told_by_kind_and_others_are_none_of_ours(message: str, kind: str | None) -> None:
    probe = make_probe()
    probe.caught("execute_model", RuntimeError(message))
    assert [event.kind for event in probe.events.all()] == ([kind] if kind else [])


def test_the_numbers_of_a_cause_come_before_the_words_of_a_wrapper() -> None:
    inner = OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
    outer = RuntimeError("CUDA out of memory occurred when warming up sampler with 256 dummy requests.")
    outer.__cause__ = inner
    found = classify(outer)
    assert found is not None
    assert "Tried to allocate" in found[1]
    loop = RuntimeError("a")
    loop.__context__ = loop
    assert classify(loop) is None


def test_a_message_is_one_short_line() -> None:
    found = classify(RuntimeError("CUDA error: x\n\x00" + "long " * 1000))
    assert found is not None
    assert len(found[1]) == MAX_HEAD
    assert found[1].isprintable()


def test_an_error_of_its_own_does_not_take_the_words_of_an_allocation() -> None:
    events = Events()
    events.observed(MemoryEvent(sequence=0, kind="oom", at=0.0, device=0, requested_bytes=5))
    events.raised("illegal_address", "m", "execute_model")
    events.raised("oom", "told", "execute_model")
    assert [(e.kind, e.message, e.requested_bytes) for e in events.all()] == [
        ("oom", "told", 5),
        ("illegal_address", "m", None),
    ]


def test_an_allocation_is_told_of_by_one_exception() -> None:
    events = Events()
    events.observed(MemoryEvent(sequence=0, kind="oom", at=0.0, device=0, requested_bytes=5))
    events.raised("oom", "its own", "execute_model")
    events.raised("oom", "a library's, which no observer sees", "sample_tokens")
    assert [(e.message, e.requested_bytes) for e in events.all()] == [
        ("its own", 5),
        ("a library's, which no observer sees", None),
    ]


# -- recordings -------------------------------------------------------------------------------------------


def many_sites() -> list[dict[str, Any]]:
    """Traces of a hundred lines, later ones with fewer, larger allocations."""
    bed = AllocatorBed()
    for number, frames in enumerate(stacks(100)):
        for _ in range(100 - number):
            bed.alloc((number + 1) * MIB // 8, frames)
    return bed.trace


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
