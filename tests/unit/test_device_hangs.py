"""Calls that never return: each costs its field, a few cost their GPU, none costs the reading; all come back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sources.base import SourceError
from agent.sources.device.lane import HANGING_PER_CARD
from tests.bed.nvml import Gpu, Instance
from tests.bed.nvml.stage import Stage

MEMORY, RATES = "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetUtilizationRates"
PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
ALL = frozenset({MEMORY, RATES, PROCESSES, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetMigMode"})
A, B = Gpu("GPU-a"), Gpu("GPU-b")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path, call_timeout_seconds=0.3) as found:
        yield found


@pytest.mark.parametrize(("function", "field"), [(MEMORY, "memory"), (RATES, "utilisation"), (PROCESSES, "processes")])
def test_a_call_that_hangs_costs_its_field_of_that_gpu_and_returns_by_itself(
    stage: Stage, function: str, field: str
) -> None:
    stage.play(A, B)
    whole = stage.read()
    stage.play(replace(A, hang=frozenset({function})), B)
    for _ in range(3):
        hurt, other = stage.read().gpus
        assert other == whole.gpus[1]
        assert (hurt.up, getattr(hurt, field)) == (True, None)
        assert list(hurt.unavailable) == [field]
        assert "hangs in the driver" in hurt.unavailable[field]
        same = {name for name in whole.gpus[0].__struct_fields__ if name not in {field, "unavailable"}}
        assert all(getattr(hurt, name) == getattr(whole.gpus[0], name) for name in same)
    assert stage.threads() == 2, "one is left behind, and it is not asked again"
    stage.play(A, B)
    stage.until(lambda: stage.read() == whole)
    stage.until(lambda: stage.threads() == 1)


def test_a_call_that_is_slow_but_answers_is_no_failure(tmp_path: Path) -> None:
    with Stage(tmp_path, call_timeout_seconds=5.0) as stage:
        stage.play(A, B)
        whole = stage.read()
        stage.play(replace(A, slow={MEMORY: 300}), B)
        assert stage.read() == whole
        assert stage.threads() == 1


def test_a_gpu_whose_calls_all_hang_is_silent_and_holds_few_threads(stage: Stage) -> None:
    stage.play(A, B)
    whole = stage.read()
    stage.play(replace(A, hang=ALL), B)
    for _ in range(6):
        hurt, other = stage.advance(20.0).gpus
    assert other == whole.gpus[1]
    assert (hurt.up, hurt.lost) == (False, "")
    assert "several calls into the driver" in hurt.silent
    assert hurt.memory is None
    assert any("not asked" in reason for reason in hurt.unavailable.values())
    assert stage.threads() == 1 + HANGING_PER_CARD
    stage.play(A, B)
    stage.until(lambda: stage.advance(20.0) == whole)


def test_a_lost_gpu_is_not_back_because_its_calls_hang_now(stage: Stage) -> None:
    stage.play(A, B)
    stage.read()
    stage.play(replace(A, lost=True), B)
    assert stage.gpu().lost
    stage.play(replace(A, lost=True, hang=ALL), B)
    assert all(stage.gpu().lost for _ in range(3))
    stage.play(A, B)
    stage.until(lambda: stage.gpu().up)


def test_a_driver_that_hangs_altogether_leaves_a_reading_that_says_so(stage: Stage) -> None:
    stage.play(A, B)
    whole = stage.read()
    stage.play(A, B, hang=ALL)
    for _ in range(6):
        state = stage.advance(20.0)
    assert [gpu.up for gpu in state.gpus] == [False, False]
    assert stage.threads() == 1 + 2 * HANGING_PER_CARD
    stage.play(A, B)
    stage.until(lambda: stage.advance(20.0) == whole)


def test_a_mig_instance_counts_for_its_card(stage: Stage) -> None:
    cut = replace(A, mig=True, instances=tuple(Instance(number) for number in range(1, 7)))
    stage.play(cut)
    whole = stage.read()
    stage.play(replace(cut, hang=frozenset({MEMORY, PROCESSES, RATES})))
    for _ in range(4):
        (gpu,) = stage.read().gpus
    assert [gpu.up, *(each.up for each in gpu.instances)] == [False] * 7
    assert stage.threads() == 1 + HANGING_PER_CARD
    stage.play(cut)
    stage.until(lambda: stage.read() == whole)


def test_events_that_hang_cost_the_events(stage: Stage) -> None:
    stage.play(A)
    stage.read()
    stage.play(A, hang=frozenset({"nvmlEventSetWait_v2"}))
    gpu = stage.gpu()
    assert (gpu.xids, list(gpu.unavailable)) == (None, ["xid"])
    assert gpu.memory is not None
    stage.play(replace(A, xid=(1, 79)))
    stage.until(lambda: (xids := stage.gpu().xids) and xids[0].code == 79)


def test_a_start_that_hangs_says_so_and_goes_on_when_it_returns(stage: Stage) -> None:
    stage.play(A, hang=frozenset({"nvmlInitWithFlags"}))
    for _ in range(3):
        with pytest.raises(SourceError, match="has not answered to nvmlInit yet"):
            stage.read()
    assert stage.threads() == 1, "it is not asked again meanwhile"
    stage.play(A)

    def read() -> bool:
        try:
            return stage.gpu().memory is not None
        except SourceError:
            return False

    stage.until(read)
    assert stage.source.period == 1.0


@pytest.mark.parametrize("function", ["nvmlDeviceGetUUID", "nvmlDeviceGetName"])
def test_a_name_that_hangs_costs_that_gpu(stage: Stage, function: str) -> None:
    stage.play(replace(A, hang=frozenset({function})), B)
    hurt, other = stage.read().gpus
    assert (hurt.gpu, hurt.up, hurt.uuid) == ("0", False, None)
    assert "hangs in the driver" in hurt.silent
    assert hurt.lost == ""
    assert (other.gpu, other.up) == ("1", True)
    stage.play(A, B)
    stage.until(lambda: [gpu.uuid for gpu in stage.read().gpus] == ["GPU-a", "GPU-b"])
    assert all(gpu.up for gpu in stage.read().gpus)
