"""GPUs that go and come back, drivers that are not there: labels stay with the card, the others go on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agent.sources.base import SourceError
from agent.sources.config import DeviceConfig
from agent.sources.device.source import AGAIN_AT_MOST_SECONDS, AGAIN_SECONDS, NO_DRIVER_SECONDS, DeviceSource
from tests.bed.nvml import DRIVER_NOT_LOADED, NO_PERMISSION, UNKNOWN, VERSION_MISMATCH, Gpu
from tests.bed.nvml.stage import Stage

A, B, C = Gpu("GPU-a"), Gpu("GPU-b"), Gpu("GPU-c")
INIT = "nvmlInitWithFlags"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as found:
        yield found


def test_a_card_that_falls_off_the_bus_is_lost_and_the_others_go_on(stage: Stage) -> None:
    stage.play(A, B, C)
    whole = stage.read()
    stage.play(A, replace(B, lost=True, xid=(1, 79)), C)
    first, lost, third = stage.read().gpus
    assert (first, third) == (whole.gpus[0], whole.gpus[2])
    assert (lost.gpu, lost.uuid, lost.index, lost.up) == ("1", "GPU-b", 1, False)
    assert "fallen off the bus" in lost.lost
    assert (lost.memory, lost.processes, lost.unavailable) == (None, None, {}), "nothing that it once said"
    assert lost.xids is not None
    assert [xid.code for xid in lost.xids] == [79], "the last word of a lost card is heard"
    stage.play(A, B, C)
    stage.read()
    back = stage.gpu("1")
    assert msgspec.structs.replace(back, xids=()) == whole.gpus[1]
    assert back.xids == lost.xids


def test_the_first_card_of_a_node_that_had_none_is_found(stage: Stage) -> None:
    stage.play()
    assert stage.read().gpus == ()
    stage.play(A)
    for _ in range(2):
        stage.advance(AGAIN_SECONDS)
    assert [gpu.uuid for gpu in stage.read().gpus] == ["GPU-a"]


def test_a_loss_is_logged_when_it_begins_and_when_it_ends(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kvtide.agent")
    stage.play(A, B)
    stage.read()
    assert caplog.messages == []
    stage.play(A, replace(B, lost=True, xid=(2, 79)))
    for _ in range(3):
        stage.read()
    stage.play(A, B)
    for _ in range(3):
        stage.read()
    assert caplog.messages == [
        "GPU 1: first XID 79, the GPU has fallen off the bus",
        "GPU 1 is not read: the GPU has fallen off the bus or was removed",
        "GPU 1 is read again",
    ]


def test_hot_removal_leaves_the_labels_of_the_others_and_the_card_comes_back_as_itself(stage: Stage) -> None:
    stage.play(A, B, C)
    whole = stage.read()
    stage.play(A, C)
    assert [gpu.up for gpu in stage.read().gpus] == [True, False, True]
    # The library is begun anew: the driver counts two now, and old handles are worth nothing.
    stage.advance(AGAIN_SECONDS)
    first, gone, third = stage.read().gpus
    assert [(gpu.gpu, gpu.uuid, gpu.index, gpu.up) for gpu in (first, gone, third)] == [
        ("0", "GPU-a", 0, True),
        ("1", "GPU-b", 1, False),
        ("2", "GPU-c", 1, True),
    ]
    assert "no longer lists" in gone.lost
    stage.play(A, B, C)
    for _ in range(3):
        stage.advance(AGAIN_AT_MOST_SECONDS)
    assert stage.read() == whole


def test_another_card_in_its_place_is_another_gpu(stage: Stage) -> None:
    stage.play(A, B)
    stage.read()
    stage.play(A, Gpu("GPU-new"))
    stage.read()
    stage.advance(AGAIN_SECONDS)
    found = {gpu.gpu: (gpu.uuid, gpu.up) for gpu in stage.read().gpus}
    assert found == {"0": ("GPU-a", True), "1": ("GPU-b", False), "2": ("GPU-new", True)}


def test_two_cards_with_one_uuid_are_two(stage: Stage) -> None:
    stage.play(A, B, Gpu("GPU-b", name="its twin"))
    assert [(gpu.gpu, gpu.index, gpu.up) for gpu in stage.read().gpus] == [
        ("0", 0, True),
        ("1", 1, True),
        ("2", 2, True),
    ]


def test_the_library_begins_anew_ever_more_seldom_and_not_at_all_while_all_is_well(stage: Stage) -> None:
    stage.play(A, B)
    before = stage.calls(INIT)
    for _ in range(50):
        stage.advance(AGAIN_SECONDS)
    assert stage.calls(INIT) == before + 1
    stage.play(A)
    for _ in range(100):
        stage.advance(AGAIN_SECONDS)
    assert before + 5 <= stage.calls(INIT) <= before + 10, "1,000 s: after 10, 20, 40, ..., 300 s"


def test_no_new_beginning_while_a_call_hangs(tmp_path: Path) -> None:
    with Stage(tmp_path, call_timeout_seconds=0.3) as stage:
        stage.play(A, B)
        stage.read()
        before = stage.calls(INIT)
        stage.play(replace(A, hang=frozenset({"nvmlDeviceGetUtilizationRates"})))
        for _ in range(5):
            stage.advance(AGAIN_SECONDS)
        assert stage.calls(INIT) == before
        stage.play(A)
        stage.until(lambda: stage.advance(AGAIN_SECONDS) and stage.calls(INIT) > before)


@pytest.mark.parametrize(
    ("code", "reason"), [(UNKNOWN, "NVML error 999"), (15, "fallen off the bus"), (NO_PERMISSION, "no permission")]
)
def test_a_card_that_gives_no_handle_has_a_row_that_says_why(stage: Stage, code: int, reason: str) -> None:
    stage.play(A, replace(B, fail={"nvmlDeviceGetHandleByIndex_v2": code}), C)
    first, bad, third = stage.read().gpus
    assert [first.up, bad.up, third.up] == [True, False, True]
    assert (bad.gpu, bad.uuid) == ("1", None)
    assert reason in (bad.silent if code == NO_PERMISSION else bad.lost)
    stage.play(A, B, C)
    assert [(gpu.gpu, gpu.uuid, gpu.up) for gpu in stage.read().gpus] == [
        ("0", "GPU-a", True),
        ("1", "GPU-b", True),
        ("2", "GPU-c", True),
    ]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (DRIVER_NOT_LOADED, "the NVIDIA kernel module is not loaded"),
        (VERSION_MISMATCH, "different versions"),
        (NO_PERMISSION, "no permission"),
        (UNKNOWN, "NVML error 999"),
    ],
)
def test_a_driver_that_does_not_start_gives_one_clear_line_and_is_asked_seldom(
    stage: Stage, code: int, reason: str
) -> None:
    stage.play(A, fail={INIT: code})
    for _ in range(2):
        with pytest.raises(SourceError, match=reason) as caught:
            stage.read()
        assert "\n" not in str(caught.value)
    assert stage.source.period == NO_DRIVER_SECONDS
    stage.play(A)
    assert stage.gpu().up
    assert stage.source.period == 1.0


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    source = DeviceSource(DeviceConfig(library="libkvtide-no-such.so.1"))
    with pytest.raises(SourceError, match=r"^no NVIDIA driver here: libkvtide-no-such.so.1 is not found$"):
        source.read()
    assert source.period == NO_DRIVER_SECONDS
    source.close()
    broken = tmp_path / "libnvidia-ml.so.1"
    broken.write_bytes(b"not a library")
    with pytest.raises(SourceError, match=r"can't be loaded: .*libnvidia-ml"):
        DeviceSource(DeviceConfig(library=str(broken))).read()


def test_a_driver_without_any_gpu_is_a_reading_without_rows(stage: Stage) -> None:
    stage.play()
    assert stage.read().gpus == ()


def test_a_driver_that_goes_while_we_read_and_comes_back(stage: Stage) -> None:
    stage.play(A, B)
    whole = stage.read()
    stage.play(fail={INIT: DRIVER_NOT_LOADED})
    assert [gpu.up for gpu in stage.read().gpus] == [False, False]
    stage.advance(AGAIN_SECONDS)
    with pytest.raises(SourceError, match="not loaded"):
        stage.read()
    stage.play(A, B)
    assert stage.read() == whole


@pytest.mark.parametrize(
    ("loading", "why"),
    [
        ("abort();", r"ends the process that loads it \(signal 6\)"),
        ("raise(SIGSEGV);", r"ends the process that loads it \(signal 11\)"),
        ("sleep(3600);", "is not loaded within 0.5 s"),
    ],
)
def test_a_library_that_does_not_let_itself_be_loaded_costs_its_source_alone(
    tmp_path: Path, loading: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.sources.device.nvml.TRIAL_SECONDS", 0.5 if "sleep" in loading else 60.0)
    code, library = tmp_path / "broken.c", tmp_path / "libbroken.so"
    headers = "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
    code.write_text(f"{headers}__attribute__((constructor)) static void begin(void) {{ {loading} }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(code)], check=True)
    source = DeviceSource(DeviceConfig(library=str(library)))
    for _ in range(2):
        with pytest.raises(SourceError, match=why):
            source.read()
    source.close()
