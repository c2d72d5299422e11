"""Who shares a GPU with an engine, by the lists of a scripted driver: by turns, through MPS, in a MIG instance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.actions.sharing import neighbours
from agent.faces.devices import shared_lines
from agent.sharing import Sharing, sharings
from agent.state import AgentState
from engine_hooks.worker.memory import mps_pipe
from exporters.collectors.device import collect_detail
from tests.bed.nvml import GIB, MIB, NO_PERMISSION, NOT_SUPPORTED, Gpu, Instance, Process
from tests.bed.nvml.stage import Stage
from tests.unit.builders import make_engine, make_state, make_worker
from tests.unit.node_builders import make_host

OURS, THEIRS, MORE = 100, 200, 300
MPS_LIST, LIST = "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v3"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Stage(tmp_path) as found:
        yield found


def node(stage: Stage, card: Gpu, *, pid: int = OURS, uuid: str = "GPU-a", **changes: object) -> AgentState:
    """Engine m with one worker, whose pid as the agent sees it is ``pid``, on ``card``."""
    stage.play(card)
    host_pids = changes.pop("host_pids", True)
    worker = make_worker(pid=pid, allocator=None)
    assert worker.worker is not None
    worker = replace(worker, worker=replace(worker.worker, device_uuid=uuid, **changes))
    engine = make_engine(engine="m", pid=pid + 1, members=(worker,))
    return make_state(
        engine, device=stage.read(), host=make_host(host_pids=host_pids), processes=(), judgement=None, waterfalls=()
    )


def one(state: AgentState) -> Sharing:
    (found,) = [each for each in sharings(state) if "m" in each.owners]
    return found


def card(*processes: Process, **changes: object) -> Gpu:
    return Gpu("GPU-a", processes=processes, **changes)


ENGINE, NEIGHBOUR = Process(OURS, 40 * GIB), Process(THEIRS, 8 * GIB)
CLIENT, OTHER_CLIENT = Process(OURS, 40 * GIB, kind="M"), Process(THEIRS, 8 * GIB, kind="M")


@pytest.mark.parametrize(
    ("processes", "others", "mps"),
    [
        ((ENGINE,), 0, False),
        ((ENGINE, NEIGHBOUR), 1, False),
        ((ENGINE, NEIGHBOUR, Process(MORE, None)), 2, False),
        ((ENGINE, Process(THEIRS, 10 * MIB)), 0, False),
        ((ENGINE, Process(THEIRS, 900 * MIB, kind="G")), 0, False),
        ((CLIENT,), 0, True),
        ((CLIENT, OTHER_CLIENT), 1, True),
        ((CLIENT, Process(MORE, 30 * MIB), OTHER_CLIENT), 1, True),
    ],
)
def test_others_are_counted_and_how_they_share_is_told(
    stage: Stage, processes: tuple[Process, ...], others: int, mps: bool
) -> None:
    state = node(stage, card(*processes))
    found = one(state)
    assert (found.others, found.mps, found.shared) == (others, mps, others > 0)
    refused = neighbours(state, state.engines[0])
    assert bool(refused) == bool(shared_lines(state)) == (others > 0)
    if others:
        assert "GPU 0 is shared with" in refused
        assert ("through MPS" in refused, "time-slicing" in refused) == (mps, not mps)
    (sample,) = [each for each in collect_detail(state) if each.metric.name == "kvtide_gpu_shared_processes"]
    assert (sample.labels, sample.value) == (("0", "mps" if mps else "time_slicing"), others)


def test_another_engine_of_ours_is_no_stranger(stage: Stage) -> None:
    state = node(stage, card(ENGINE, NEIGHBOUR))
    theirs = make_worker(pid=THEIRS, allocator=None)
    state = replace(state, engines=(*state.engines, make_engine(engine="n", pid=THEIRS + 1, members=(theirs,))))
    found = one(state)
    assert (found.others, found.owners) == (0, ("m", "n"))
    assert neighbours(state, state.engines[0]) == ""


def test_a_mig_instance_is_not_shared_by_who_is_in_another(stage: Stage) -> None:
    instances = (Instance(1, uuid="MIG-one"), Instance(2, uuid="MIG-two"))
    inside = Process(OURS, 4 * GIB, instance=(1, 0))
    for where, others in ((2, 0), (1, 1)):
        gpu = card(inside, Process(THEIRS, 4 * GIB, instance=(where, 0)), mig=True, instances=instances)
        state = node(stage, gpu, uuid="MIG-one")
        stage.advance(60.0)
        state = replace(state, device=stage.read())
        found = one(state)
        assert (found.gpu, found.others) == ("0/1", others)
        assert bool(neighbours(state, state.engines[0])) == bool(others)


@pytest.mark.parametrize(("more", "others"), [((), 0), ((NEIGHBOUR,), 1)])
def test_an_agent_that_does_not_see_the_hosts_pids_takes_ours_off(
    stage: Stage, more: tuple[Process, ...], others: int
) -> None:
    state = node(stage, card(Process(4711, 40 * GIB), *more), host_pids=False)
    assert one(state).others == others


def test_a_driver_without_the_list_of_clients_leaves_the_workers_word(stage: Stage) -> None:
    fail = {MPS_LIST: NOT_SUPPORTED, MPS_LIST.replace("v3", "v2"): NOT_SUPPORTED}
    for told, through in ((True, "through MPS"), (False, "time-slicing"), (None, "time-slicing")):
        state = node(stage, card(ENGINE, NEIGHBOUR, fail=fail), mps=told)
        stage.advance(120.0)
        assert through in neighbours(replace(state, device=stage.read()), state.engines[0])


def test_where_nobody_tells_who_is_there_a_server_of_mps_is_enough(stage: Stage) -> None:
    fail = dict.fromkeys((LIST, MPS_LIST), NO_PERMISSION)
    for told, refused in ((True, True), (False, False), (None, False)):
        state = node(stage, card(ENGINE, fail=fail), mps=told)
        assert one(state).others is None
        assert ("can't be seen" in neighbours(state, state.engines[0])) == refused
        without = replace(state, device=None)
        assert ("can't be seen" in neighbours(without, state.engines[0])) == refused


def test_a_worker_finds_the_pipe_where_cuda_looks_for_it(tmp_path: Path) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert not mps_pipe(environ)
    (tmp_path / "control").touch()
    assert mps_pipe(environ)
    assert not mps_pipe({"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "none")})
