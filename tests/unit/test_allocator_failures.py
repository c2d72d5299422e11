"""The probe while an allocation fails: what it tells, what it writes, and that it never does harm."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from engine_hooks.allocator import MAX_EVENTS, MAX_HEAD, MIB, MemoryEvent
from engine_hooks.members import MemberReport
from engine_hooks.settings import Settings
from engine_hooks.torch import probe as probe_module
from engine_hooks.torch.errors import classify
from engine_hooks.torch.events import Events
from engine_hooks.torch.probe import of_process
from engine_hooks.torch.snapshots import MAX_BLOCKS, MAX_FILES, OFF
from tests.bed.fake_torch import FakeTorch, OutOfMemoryError
from tests.bed.snapshots import AllocatorBed
from tests.unit.probes import Speaker, make_probe, sent


@pytest.fixture(autouse=True)
def _no_walk_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk during which a busy machine did something else for a second would be the last while one fails."""
    monkeypatch.setattr(probe_module, "SLOW_WALK_SECONDS", 600.0)


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
    probe = make_probe(KVTIDE_SNAPSHOT_DIR=str(tmp_path))
    probe.row(0.0)  # its walk is timed, and a slow one would be refused
    torch._C._cuda_memorySnapshot = lambda _asked: {"segments": [huge, one, one]}
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
