"""Reports on a GPU's memory: what grows, what stays after its owner, what only looks wrong."""

from __future__ import annotations

from collections.abc import Iterator

from agent.sources.device.state import GpuMemory, GpuState
from agent.sources.host.state import DeadHolder, RestartState
from agent.state import AgentState
from engine_hooks.allocator import AllocatorRow, DeviceRow, TagRow
from tests.unit.timeline import GIB, MIB, engine, gpu, host, member, state, times, watch

HOUR = 3600.0


def allocator(allocated: int, reserved: int | None = None, **changes: object) -> AllocatorRow:
    """torch on GPU 0 with so many bytes allocated."""
    reserved = reserved if reserved is not None else allocated + 200 * MIB
    row = DeviceRow(
        device=0,
        uuid="GPU-0",
        allocated_bytes=allocated,
        active_bytes=allocated,
        reserved_bytes=reserved,
        requested_bytes=allocated,
        private_reserved_bytes=0,
        retries_total=0,
        ooms_total=0,
    )
    return AllocatorRow(backend="native", expandable_segments=True, fields=18, devices=(row,), **changes)  # type: ignore[arg-type]


def test_gpu_04_and_gpu_05_memory_of_a_server_that_only_rises() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(24 * HOUR, 30):
            size = 40 * GIB + int(0.25 * GIB * t / HOUR)
            serving = engine(members=(member(allocator(size)),))
            yield state(t, engines=(serving,), gpus=[gpu(size + 3 * GIB)])

    seen = watch(states())
    assert seen.kinds() & {"allocator_growth", "device_growth"}
    kind = next(iter(seen.kinds() & {"allocator_growth", "device_growth"}))
    assert seen.at(kind) < 12 * HOUR


def test_gpu_14_a_sleeping_engine_that_keeps_its_memory() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(900, 2):
            asleep = t > 120
            tags = (
                TagRow(
                    tag="weights", device=0, allocations=10, bytes=16 * GIB, mapped_bytes=16 * GIB, backed_up_bytes=0
                ),
                TagRow(
                    tag="kv_cache",
                    device=0,
                    allocations=1,
                    bytes=40 * GIB,
                    mapped_bytes=0 if asleep else 40 * GIB,
                    backed_up_bytes=0,
                ),
            )
            row = allocator(57 * GIB, 57 * GIB, tags=tags)
            sleeping = engine(members=(member(row),), running=0)
            yield state(t, engines=(sleeping,), gpus=[gpu(19 * GIB if asleep else 59 * GIB)])

    seen = watch(states())
    assert "sleep_residue" in seen.kinds()
    assert "16" in seen.of("sleep_residue").sentence


def test_gpu_17_dead_processes_that_hold_memory() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(120):
            dead = tuple(DeadHolder(gpu="0", pid=9000 + n, used_bytes=11 * GIB) for n in range(2))
            yield state(t, gpus=[gpu(23 * GIB)], host=host(dead=dead, dead_bytes={"0": 22 * GIB}))

    verdict = watch(states()).of("dead_process_memory")
    assert verdict.phase == "confirmed"
    assert "22" in verdict.sentence
    assert verdict.subject.gpu == "0"


def test_gpu_20_and_cold_01_a_card_that_is_preallocated_is_well() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(2 * HOUR, 2):
            size = int(73 * GIB)
            yield state(t, engines=(engine(members=(member(allocator(size)),)),), gpus=[gpu(size + GIB)])

    assert watch(states()).kinds() == set()


def test_cold_02_a_crash_loop_is_told_as_one() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(1800, 5):
            number = int(t // 300)
            again = RestartState(engine="m", restarts=number)
            up = t % 300 > 200
            engines = (engine(instance=f"i{number}"),) if up else ()
            yield state(t, engines=engines, host=host(restarts=(again,)))

    seen = watch(states())
    assert "restart_loop" in seen.pages()
    assert "restart" in seen.of("restart_loop").sentence.lower()


def test_nv_02_and_nv_03_memory_that_is_shared_with_the_host_is_not_added_up() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(600):
            told = GpuMemory(total=128_501_256_192, used=6_910_320_640, free=7_976_902_656, reserved=None)
            unified = GpuState(gpu="0", uuid="GPU-0", name="GB10", index=0, unified=True, memory=told, xids=())
            silent = GpuState(gpu="1", uuid="GPU-1", name="GB10", index=1, unified=True, memory=None, xids=())
            yield state(t, gpus=[unified, silent])

    assert watch(states()).kinds() == set()


def test_nv_11_and_nv_12_an_instance_whose_memory_is_not_told_is_not_empty() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(600):
            part = GpuState(
                gpu="0/3",
                uuid="MIG-1",
                name="3g.40gb",
                index=0,
                parent="0",
                memory=None,
                unavailable={"memory": "Not Supported"},
            )
            whole = gpu(20 * GIB, mig=True, instances=(part,))
            yield state(t, gpus=[whole])

    assert "device_growth" not in watch(states()).kinds()


def test_nv_15_and_nv_17_what_the_driver_keeps_is_no_growth() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 5):
            told = GpuMemory(total=81920 * MIB, used=741 * MIB, free=80328 * MIB, reserved=851 * MIB)
            yield state(t, gpus=[gpu(741 * MIB, memory=told)])

    assert watch(states()).kinds() == set()


def test_nv_20_memory_that_nobody_is_named_for_is_no_dead_process() -> None:
    """The Windows side of WSL holds it: 17 GiB used, no process listed."""

    def states() -> Iterator[AgentState]:
        for t in times(HOUR, 5):
            yield state(t, gpus=[gpu(17461 * MIB, 24 * GIB)], host=host(host_pids=False, dead=None, dead_bytes=None))

    assert watch(states()).kinds() == set()


def test_nv_23_one_lost_gpu_is_told_and_the_others_go_on() -> None:
    def states() -> Iterator[AgentState]:
        for t in times(120):
            lost = GpuState(gpu="1", uuid="GPU-1", name="A100", index=1, lost="GPU is lost", xids=())
            yield state(t, gpus=[gpu(40 * GIB), lost if t > 30 else gpu(40 * GIB, gpu="1", uuid="GPU-1", index=1)])

    seen = watch(states())
    assert seen.kinds() == {"gpu_lost"}
    assert seen.of("gpu_lost").subject.gpu == "1"
    assert 30 < seen.at("gpu_lost") < 60
