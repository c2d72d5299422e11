"""The waterfall of MIG instances, of drivers that do not tell all, and of parts that do not fit."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from agent.sources.device.state import GpuMemory, GpuProcess, GpuProcesses, GpuState
from agent.waterfall.build import waterfalls
from tests.unit.node_builders import make_gpu
from tests.unit.waterfalls import (
    GIB,
    GPU,
    MIB,
    Rank,
    Torch,
    Truth,
    allocator_of,
    check_identity,
    device_row,
    engine_of,
    reasons,
    sizes,
    trainer_of,
    waterfall_of,
    worker_of,
)

# -- MIG --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["MIG-aa", "GPU-aa", GPU, ""], ids=["its own", "as torch writes it", "card", "none"])
def test_the_instances_of_a_gpu_have_waterfalls_of_their_own(said: str) -> None:
    truth = Truth()
    whole = truth.gpu()
    used = make_gpu(
        "0/1", parent="0", uuid="MIG-ab", memory=whole.memory, processes=whole.processes, compute_instances=("MIG-aa",)
    )
    nobody = GpuProcesses(rows=(), count=0)
    idle = make_gpu(
        "0/2",
        parent="0",
        uuid="MIG-cc",
        memory=GpuMemory(total=GIB, used=0, free=GIB, reserved=0),
        processes=nobody,
        compute_instances=("MIG-cc",),
    )
    row = allocator_of(Torch(), Rank(), devices=(device_row(Torch(), Rank().named, uuid=said),))
    worker = worker_of(101, Rank(), row)
    worker = msgspec.structs.replace(worker, worker=msgspec.structs.replace(worker.worker, device_uuid=said))
    gpu = make_gpu("0", uuid=GPU, mig=True, memory=whole.memory, instances=(used, idle), processes=nobody)
    first, second = waterfalls((gpu,), (engine_of("101", worker),), (), host_pids=True)
    assert (first.gpu, sizes(first), first.unattributed_bytes) == ("0/1", truth.parts(), truth.rest)
    assert (second.gpu, sizes(second), second.unattributed_bytes) == ("0/2", {("free", ""): GIB}, 0)


def test_gpus_and_instances_that_do_not_answer_have_none() -> None:
    lost = GpuState(gpu="1", uuid="GPU-1", name="x", index=1, lost="gone")
    gpu = make_gpu("0", mig=True, instances=(make_gpu("0/1", parent="0", silent="hangs"),))
    assert waterfalls((gpu, lost), (), (), host_pids=True) == ()


# -- what the driver does not tell ------------------------------------------------------------------------


def test_without_bytes_by_process_contexts_and_others_are_in_the_remainder() -> None:
    """WSL: the driver lists processes and says N/A of each."""
    truth = Truth(foreign={301: GIB})
    rows = tuple(GpuProcess(pid=pid, used_bytes=None, kind="C") for pid in (101, 301))
    found = truth.waterfall(processes=GpuProcesses(rows=rows, count=2))
    check_identity(found)
    assert found.unattributed_bytes == truth.rest + Torch().context + GIB
    assert "does not tell what 2 processes hold" in reasons(found)


def test_without_a_list_of_processes_likewise() -> None:
    truth = Truth(foreign={301: GIB})
    found = truth.waterfall(processes=None, unavailable={"processes": "no permission"})
    check_identity(found)
    assert found.unattributed_bytes == truth.rest + Torch().context + GIB
    assert {"context", "other_processes"} & {part.part for part in found.parts} == set(), "absent is not zero"
    assert "(no permission)" in reasons(found)


def test_a_list_that_was_cut_is_said_to_be() -> None:
    truth = Truth(foreign={301: GIB, 302: MIB})
    processes = truth.gpu().processes
    found = truth.waterfall(processes=GpuProcesses(rows=processes.rows[:2], count=3))
    assert found.unattributed_bytes == truth.rest + MIB
    assert "of 3 processes only 2 are looked at" in reasons(found)


@pytest.mark.parametrize("host_pids", [False, None])
@pytest.mark.parametrize("pid", [0, 7])
def test_pids_of_another_namespace_do_not_count_memory_twice(pid: int, host_pids: bool | None) -> None:
    """The driver books our process under a pid that the agent can't know: what is beside torch is not ours to name."""
    truth = Truth(foreign={301: GIB})
    worker = worker_of(101, Rank(), pid=pid)
    found = waterfall_of(truth.gpu(), engine_of("101", worker), host_pids=host_pids)
    check_identity(found)
    assert sizes(found)["other_processes", ""] == GIB + Torch().context
    assert found.unattributed_bytes == truth.rest
    assert "does not see the host's pids" in reasons(found)


def test_with_the_hosts_pids_one_that_is_not_listed_takes_nothing_from_others() -> None:
    """A process that began after the driver's list was read."""
    truth = Truth(foreign={301: 50 * GIB})
    gpu = truth.gpu()
    rows = tuple(row for row in gpu.processes.rows if row.pid != 101)
    found = waterfall_of(truth.gpu(processes=GpuProcesses(rows=rows, count=1)), *truth.engines())
    assert sizes(found)["other_processes", ""] == 50 * GIB
    assert found.unattributed_bytes == truth.rest + Torch().context
    assert "not in the driver's list" in reasons(found)


def test_pid_zero_is_nobody() -> None:
    """The driver may give it for what it does not show; a process that the agent does not see has it, too."""
    truth = Truth(foreign={0: 20 * GIB})
    worker = worker_of(101, Rank(), pid=0)
    found = waterfall_of(truth.gpu(), engine_of("101", worker), host_pids=False)
    assert ("context", "101") not in sizes(found)


def test_an_older_driver_keeps_its_own_in_the_remainder() -> None:
    truth = Truth()
    memory = truth.gpu().memory
    found = truth.waterfall(
        memory=GpuMemory(total=memory.total, used=memory.used + truth.driver, free=memory.free, reserved=None)
    )
    assert found.unattributed_bytes == truth.rest + truth.driver
    assert "that is in the remainder" in reasons(found)


def test_memory_that_is_the_hosts_has_parts_and_no_sum() -> None:
    found = Truth().waterfall(memory=None, unified=True)
    assert (found.total_bytes, found.unattributed_bytes) == (None, None)
    assert sizes(found)["weights", "101"] == 4 * GIB
    assert "shares the host's memory" in found.reasons[0]
    failed = Truth().waterfall(memory=None, unavailable={"memory": "it hangs"})
    assert "it hangs" in failed.reasons[0]


# -- what does not fit ------------------------------------------------------------------------------------


def test_weights_that_lie_elsewhere_make_the_remainder_too_low_and_no_part_negative() -> None:
    rank = Rank()
    row = allocator_of(rank.torch, replace(rank, weights=0))
    found = waterfall_of(
        Truth(ranks={101: replace(rank, weights=0)}).gpu(), engine_of("101", worker_of(101, rank, row))
    )
    check_identity(found)
    over = rank.weights - rank.torch.active
    assert found.unattributed_bytes == 30 * MIB - over
    assert "101: its parts come to 3.7 GiB more than torch has in use" in reasons(found)


def test_the_drivers_rounding_is_no_news() -> None:
    truth = Truth(ranks={101: Rank(torch=Torch(context=-MIB))})
    found = truth.waterfall()
    assert (found.reasons, found.unattributed_bytes) == ((), truth.rest - MIB)


def test_a_walk_that_is_behind_says_how_far() -> None:
    truth = Truth()
    grown = msgspec.structs.replace(
        row := allocator_of(Torch(), Rank()),
        devices=(msgspec.structs.replace(row.devices[0], reserved_bytes=row.devices[0].reserved_bytes + 40 * MIB),),
    )
    found = waterfall_of(truth.gpu(), engine_of("101", worker_of(101, Rank(), grown)))
    (graphs,) = (part for part in found.parts if part.part == "graphs")
    assert graphs.error_bytes == 40 * MIB


def test_rounding_is_the_error_of_what_is_in_use() -> None:
    row = allocator_of(Torch(), Rank())
    device = msgspec.structs.replace(row.devices[0], requested_bytes=row.devices[0].allocated_bytes - 3 * MIB)
    worker = worker_of(101, Rank(), msgspec.structs.replace(row, devices=(device,)))
    found = waterfall_of(Truth().gpu(), engine_of("101", worker))
    errors = {part.part: part.error_bytes for part in found.parts}
    assert errors["torch_active"] == 3 * MIB
    assert found.error_bytes == sum(errors.values())


def test_before_the_first_walk_graphs_are_in_torchs_memory_in_use() -> None:
    row = msgspec.structs.replace(allocator_of(Torch(), Rank()), walk=None)
    found = waterfall_of(Truth().gpu(), engine_of("101", worker_of(101, Rank(), row)))
    assert "what CUDA graphs keep is in torch's memory in use (not walked yet)" in reasons(found)
    assert ("graphs", "101") not in sizes(found)
    assert found.unattributed_bytes == 30 * MIB


def test_names_of_trainers_are_their_own() -> None:
    truth = Truth(ranks={}, trainers={201: Torch()})
    found = waterfall_of(truth.gpu(), processes=(trainer_of(201, Torch(), process="job"),))
    assert {owner for _, owner in sizes(found)} == {"torch/job", ""}
