"""What the unmodified binding reads from a scripted driver, field by field: values, failures, what is not there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent.sources.device.processes import KEPT
from agent.sources.device.readings import RARE_SECONDS, SLOW_SECONDS
from agent.sources.device.xids import CODES, OTHER
from tests.bed.nvml import (
    FUNCTION_NOT_FOUND,
    GIB,
    MIB,
    NO_PERMISSION,
    NOT_SUPPORTED,
    UNKNOWN,
    Gpu,
    Instance,
    Memory,
    Process,
    Script,
    environment,
)
from tests.bed.nvml.stage import Stage, library

CARD = Gpu("GPU-a")
MEMORY_V2 = "nvmlDeviceGetMemoryInfo_v2"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as found:
        yield found


def test_every_field_of_a_healthy_card(stage: Stage) -> None:
    card = Gpu(
        "GPU-a",
        memory=Memory(total=80 * GIB, used=60 * GIB, reserved=600 * MIB),
        processes=(Process(100, 59 * GIB), Process(200, 3 * MIB, kind="G")),
        bar1=(128 * GIB, 8 * MIB),
        utilisation=(87, 41),
        throttle=0x04 | 0x20,
        ecc=(1, 2, 3, 4),
        remapped=(5, 6, 1, 0),
        retired=(7, 8, 1),
        compute_mode=3,
    )
    stage.play(card)
    state = stage.read()
    assert (state.driver, state.cuda_driver) == ("580.95.05", "13.0")
    (gpu,) = state.gpus
    assert (gpu.gpu, gpu.uuid, gpu.name, gpu.index, gpu.parent) == ("0", "GPU-a", card.name, 0, None)
    assert (gpu.up, gpu.unified, gpu.mig, gpu.instances, gpu.compute_mode) == (
        True,
        False,
        False,
        (),
        "exclusive_process",
    )
    assert gpu.memory is not None
    assert (gpu.memory.total, gpu.memory.used, gpu.memory.reserved) == (80 * GIB, 60 * GIB, 600 * MIB)
    assert gpu.memory.used + gpu.memory.free + gpu.memory.reserved == gpu.memory.total
    assert gpu.processes is not None
    assert [(each.pid, each.used_bytes, each.kind) for each in gpu.processes.rows] == [
        (100, 59 * GIB, "C"),
        (200, 3 * MIB, "G"),
    ]
    assert gpu.bar1 is not None
    assert (gpu.bar1.total, gpu.bar1.used) == (128 * GIB, 8 * MIB)
    assert gpu.utilisation is not None
    assert (gpu.utilisation.gpu, gpu.utilisation.memory) == (0.87, 0.41)
    assert gpu.throttle == ("sw_power_cap", "sw_thermal_slowdown")
    assert gpu.ecc is not None
    assert (gpu.ecc.corrected, gpu.ecc.uncorrected, gpu.ecc.corrected_ever, gpu.ecc.uncorrected_ever) == (1, 2, 3, 4)
    rows, pages = gpu.remapped_rows, gpu.retired_pages
    assert rows is not None
    assert pages is not None
    assert (rows.corrected, rows.uncorrected, rows.pending, rows.failed) == (5, 6, True, False)
    assert (pages.single_bit, pages.double_bit, pages.pending) == (7, 8, True)
    assert (gpu.xids, gpu.unavailable, gpu.unsupported) == ((), {}, {})


def test_memory_follows_its_curve_to_the_end(stage: Stage) -> None:
    stage.play(replace(CARD, curve=((0.0, 10 * GIB), (0.2, 70 * GIB))))
    seen: list[int] = []

    def used() -> int:
        memory = stage.gpu().memory
        assert memory is not None
        assert memory.reserved is not None
        assert memory.used + memory.free + memory.reserved == memory.total
        seen.append(memory.used)
        return memory.used

    stage.until(lambda: used() == 70 * GIB)
    assert seen == sorted(seen)


@pytest.mark.parametrize(("code", "reason"), [(NO_PERMISSION, "no permission"), (UNKNOWN, "NVML error 999")])
@pytest.mark.parametrize(
    ("function", "field"),
    [
        (MEMORY_V2, "memory"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "processes"),
        ("nvmlDeviceGetUtilizationRates", "utilisation"),
        ("nvmlDeviceGetCurrentClocksEventReasons", "throttle"),
        ("nvmlDeviceGetBAR1MemoryInfo", "bar1"),
        ("nvmlDeviceGetTotalEccErrors", "ecc"),
        ("nvmlDeviceGetRemappedRows", "remapped_rows"),
        ("nvmlDeviceGetRetiredPages", "retired_pages"),
        ("nvmlDeviceGetComputeMode", "compute_mode"),
        ("nvmlDeviceGetMigMode", "mig"),
    ],
)
def test_a_call_that_fails_costs_its_field_and_nothing_else(
    stage: Stage, function: str, field: str, code: int, reason: str
) -> None:
    card = replace(CARD, retired=(0, 0, 0))
    stage.play(card)
    whole = stage.gpu()
    stage.play(replace(card, fail={function: code}))
    hurt = next(iter(stage.advance(RARE_SECONDS).gpus))
    assert getattr(whole, field) is not None
    assert getattr(hurt, field) is None
    assert list(hurt.unavailable) == [field]
    assert reason in hurt.unavailable[field]
    others = {name for name in whole.__struct_fields__ if name not in {field, "unavailable"}}
    assert {name: getattr(hurt, name) for name in others} == {name: getattr(whole, name) for name in others}
    stage.play(card)
    assert next(iter(stage.advance(RARE_SECONDS).gpus)) == whole


def test_what_a_card_does_not_have_is_no_failure(stage: Stage) -> None:
    stage.play(replace(CARD, utilisation=None, ecc=None, remapped=None, bar1=None, throttle=None, mig=None))
    gpu = stage.gpu()
    assert gpu.unavailable == {}
    assert set(gpu.unsupported) == {"utilisation", "ecc", "remapped_rows", "retired_pages", "bar1", "throttle", "mig"}
    assert gpu.memory is not None
    assert not gpu.unified


@pytest.mark.parametrize("code", [FUNCTION_NOT_FOUND, 25])
def test_an_old_driver_tells_memory_without_its_own_part_and_says_so(stage: Stage, code: int) -> None:
    stage.play(replace(CARD, fail={MEMORY_V2: code}))
    gpu = stage.gpu()
    assert gpu.memory is not None
    assert (gpu.memory.used, gpu.memory.reserved) == (10 * GIB + 600 * MIB, None)
    assert "used includes it" in gpu.unsupported["memory_reserved"]
    stage.play(CARD)
    assert "memory_reserved" not in stage.gpu().unsupported


def test_a_driver_of_before_510_lists_processes_by_its_older_name(stage: Stage) -> None:
    lists = ("Compute", "Graphics", "MPSCompute")
    old = {f"nvmlDeviceGet{name}RunningProcesses_v3": FUNCTION_NOT_FOUND for name in lists}
    old["nvmlDeviceGetCurrentClocksEventReasons"] = FUNCTION_NOT_FOUND
    stage.play(replace(CARD, processes=(Process(5),), throttle=1, fail=old))
    gpu = stage.gpu()
    assert gpu.processes is not None
    assert [each.pid for each in gpu.processes.rows] == [5]
    assert (gpu.throttle, gpu.unavailable) == (("gpu_idle",), {})


def test_a_machine_with_unified_memory_claims_none(stage: Stage) -> None:
    stage.play(replace(CARD, name="NVIDIA GB10", memory=None, bar1=None, processes=(Process(9, 3 * GIB),)))
    gpu = stage.gpu()
    assert (gpu.unified, gpu.memory, gpu.up) == (True, None, True)
    assert "memory" in gpu.unsupported
    assert gpu.processes is not None
    assert gpu.processes.rows[0].used_bytes == 3 * GIB


@pytest.mark.parametrize(
    "memory",
    [Memory(total=GIB, used=2 * GIB, reserved=0, free=0), Memory(total=GIB, used=2**64 - 1, reserved=0, free=0)],
)
def test_impossible_memory_is_a_failure_and_not_a_number(stage: Stage, memory: Memory) -> None:
    stage.play(replace(CARD, memory=memory))
    gpu = stage.gpu()
    assert (gpu.memory, gpu.unified) == (None, False)
    assert "impossible" in gpu.unavailable["memory"]


def test_a_list_that_grows_while_it_is_read_is_read_once_more(stage: Stage) -> None:
    function = "nvmlDeviceGetComputeRunningProcesses_v3"
    stage.play(replace(CARD, fail={function: 7}))  # the room that the binding made is too small, both times
    before = stage.calls(function)
    gpu = stage.gpu()
    assert stage.calls(function) - before == 4
    assert (gpu.processes, list(gpu.unavailable)) == (None, ["processes"])


def test_no_memory_per_process_as_on_wsl(stage: Stage) -> None:
    stage.play(replace(CARD, processes=(Process(79, None), Process(80, GIB))))
    gpu = stage.gpu()
    assert gpu.processes is not None
    assert [(each.pid, each.used_bytes) for each in gpu.processes.rows] == [(79, None), (80, GIB)]


def test_a_process_in_several_lists_is_one(stage: Stage) -> None:
    both = (Process(5, GIB), Process(5, GIB, kind="G"), Process(6, None, kind="M"), Process(6, MIB))
    stage.play(replace(CARD, processes=both))
    gpu = stage.gpu()
    assert gpu.processes is not None
    assert [(each.pid, each.used_bytes, each.kind) for each in gpu.processes.rows] == [(5, GIB, "C+G"), (6, MIB, "M+C")]


def test_the_largest_of_very_many_processes_are_kept_and_all_counted(stage: Stage) -> None:
    stage.play(replace(CARD, processes=tuple(Process(pid, pid * MIB) for pid in range(1, KEPT + 101))))
    gpu = stage.gpu()
    assert gpu.processes is not None
    assert (len(gpu.processes.rows), gpu.processes.count) == (KEPT, KEPT + 100)
    assert min(each.pid for each in gpu.processes.rows) == 101


def test_static_facts_are_read_once_and_slow_ones_seldom(stage: Stage) -> None:
    stage.play(CARD)
    functions = ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetTotalEccErrors", MEMORY_V2)
    before = [stage.calls(function) for function in functions]
    for _ in range(int(SLOW_SECONDS)):
        stage.read()
    calls = [stage.calls(function) - number for function, number in zip(functions, before, strict=True)]
    assert calls == [1, 1, 4, SLOW_SECONDS]
    stage.read()
    assert stage.calls("nvmlDeviceGetTotalEccErrors") - before[2] == 8


def test_mig_instances_are_rows_of_their_own(stage: Stage) -> None:
    cut = replace(
        CARD,
        mig=True,
        utilisation=None,
        instances=(
            Instance(3, Memory(total=20 * GIB, used=5 * GIB, reserved=MIB)),
            Instance(4, Memory(total=40 * GIB, used=6 * GIB, reserved=0)),
            Instance(4, Memory(total=40 * GIB, used=6 * GIB, reserved=0), compute_instance=1, uuid="MIG-second"),
        ),
        processes=(Process(100, instance=(3, 0)), Process(200, instance=(4, 0))),
    )
    stage.play(cut, Gpu("GPU-b"))
    whole, other = stage.read().gpus
    assert (whole.mig, other.mig, other.instances) == (True, False, ())
    assert whole.processes is not None
    assert whole.processes.count == 2
    first, second = whole.instances
    assert [(each.gpu, each.parent, each.index) for each in (first, second)] == [("0/3", "0", 0), ("0/4", "0", 0)]
    assert first.uuid == "MIG-a-3-0"
    assert second.compute_instances == ("MIG-a-4-0", "MIG-second"), "one row for one memory"
    assert first.memory is not None
    assert (first.memory.total, first.memory.used) == (20 * GIB, 5 * GIB)
    assert first.processes is not None
    assert [each.pid for each in first.processes.rows] == [100]
    assert (first.unavailable, first.unsupported, first.xids) == ({}, {}, None)
    # Cut anew: within the slow period, and at once where an instance that is asked has gone.
    stage.play(replace(cut, instances=(Instance(9),), processes=()), Gpu("GPU-b"))
    stage.read()
    assert [each.gpu for each in stage.gpu().instances] == ["0/9"]
    stage.play(CARD, Gpu("GPU-b"))
    stage.read()
    assert (stage.gpu().mig, stage.gpu().instances) == (False, ())


def test_no_permission_to_see_processes_in_a_mig_container(stage: Stage) -> None:
    fail = {"nvmlDeviceGetComputeRunningProcesses_v3": NO_PERMISSION}
    stage.play(replace(CARD, mig=True, instances=(Instance(1),), fail=fail))
    gpu = stage.gpu()
    assert (gpu.processes, gpu.unavailable) == (None, {"processes": "no permission"})
    (instance,) = gpu.instances
    assert instance.memory is not None
    assert instance.unavailable == {"processes": "no permission"}


def test_xids_are_counted_by_code(stage: Stage) -> None:
    other = Gpu("GPU-b")
    stage.play(replace(CARD, xid=(5, 13)), other)
    assert stage.gpu().xids == (), "what was before the agent is not counted"
    for number, code in ((6, 31), (7, 31), (8, 79)):
        stage.play(replace(CARD, xid=(number, code)), other)
        stage.read()
    gpu, quiet = stage.read().gpus
    assert gpu.xids is not None
    assert [(xid.code, xid.count) for xid in gpu.xids] == [(31, 2), (79, 1)]
    assert quiet.xids == ()


def test_very_many_kinds_of_xids_stay_bounded(stage: Stage) -> None:
    stage.play(replace(CARD, xid=(0, 0)))
    stage.read()
    for code in range(1, CODES + 4):
        stage.play(replace(CARD, xid=(code, code)))
        stage.read()
    xids = stage.gpu().xids
    assert xids is not None
    assert len(xids) == CODES + 1
    assert xids[0].code == OTHER
    assert xids[0].count == 3


@pytest.mark.parametrize(
    ("script", "card", "where"),
    [
        ({}, {"nvmlDeviceRegisterEvents": NOT_SUPPORTED}, "unsupported"),
        ({}, {"nvmlDeviceRegisterEvents": NO_PERMISSION}, "unavailable"),
        ({"nvmlEventSetCreate": NOT_SUPPORTED}, {}, "unsupported"),
        ({"nvmlEventSetWait_v2": UNKNOWN}, {}, "unavailable"),
    ],
)
def test_where_no_xids_can_be_heard_there_are_none_not_zero(
    stage: Stage, script: dict[str, int], card: dict[str, int], where: str
) -> None:
    stage.play(replace(CARD, fail=card), fail=script)
    gpu = stage.gpu()
    assert (gpu.xids, list(getattr(gpu, where))[-1]) == (None, "xid")
    stage.play(CARD)
    if script:  # what a card refuses, it is not asked again in the same session
        stage.read()
        assert stage.gpu().xids == ()


def test_another_process_finds_the_driver_by_the_loader_as_in_production(tmp_path: Path) -> None:
    Script(gpus=(replace(CARD, processes=(Process(3),)), Gpu("GPU-b", lost=True))).write(tmp_path / "script")
    code = (
        "import msgspec, sys; from agent.sources.config import DeviceConfig;"
        "from agent.sources.device.source import DeviceSource as S;"
        "assert 'pynvml' not in sys.modules, 'imported only when read';"
        # A busy machine may let the first calls take longer than a reading waits for them: the next one has them.
        "s = S(DeviceConfig()); found = [s.read() for _ in range(5)];"
        "print(msgspec.json.encode(found).decode()); s.close()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(library(), tmp_path / "script"),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    readings = [reading["gpus"] for reading in json.loads(ran.stdout)]
    told = [first["processes"]["rows"] for first, _ in readings if first["processes"] is not None]
    assert told[-1] == [{"pid": 3, "used_bytes": GIB, "kind": "C"}]
    assert all("fallen off the bus" in second["lost"] for _, second in readings)
