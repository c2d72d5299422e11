"""Zombies, delayed frees, and the allocator's reserve: levers on what is left behind."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine import FinishReason

from engine_hooks.core import hook
from engine_hooks.core.levers.trim import Trim
from engine_hooks.core.levers.trim_worker import look, trim
from engine_hooks.levers.base import RefusedError
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.settings import Settings
from tests.bed.connectors import make_connector_scheduler, make_remote_request, step
from tests.bed.fake_torch import FakeTorch
from tests.bed.snapshots import GIB, MIB, AllocatorBed
from tests.compat.build import LoopCore
from tests.engine.levers.remembering import ALL, check_queue

SETTINGS = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock", "KVTIDE_LEVERS": ALL})


_actions = itertools.count()


def order(reporter: Any, lever: str, op: Any = "apply", **arguments: Any) -> ActionResult:
    desk = reporter._desk
    return desk.execute(  # type: ignore[no-any-return]
        ActionOrder(action=f"a{next(_actions)}", lever=lever, op=op, instance=desk._instance, arguments=arguments), 0.0
    )


# -- zombies -----------------------------------------------------------------------------------------------------


class Core(LoopCore):
    """An engine process that is stepped by hand; its outputs stay in ``output_queue``."""

    def process_output_sockets(self, outputs: Any, coordinator: Any, engine_index: int) -> None:
        """Nobody listens: the test does."""


@pytest.fixture
def core() -> Iterator[Any]:
    engine = Core()
    engine.reporter = hook.attach(engine, SETTINGS)
    yield engine
    engine.reporter.close()


def run(core: Any, seconds: float, clock: list[float]) -> None:
    lever = core.reporter._desk._levers["end_zombies"]
    lever._clock = lambda: clock[0]
    for _ in range(int(seconds)):
        clock[0] += 1.0
        core._process_engine_step()


def test_who_decodes_without_a_token_is_ended_and_its_client_told(core: Any) -> None:
    clock = [0.0]
    core.options.max_tokens = 1000
    for _ in range(3):
        core.add()
    core._process_input_queue()
    run(core, 3, clock)
    victim = core.scheduler.running[1]
    victim.next_decode_eligible_step = 10**9  # never its turn
    assert order(core.reporter, "end_zombies").code == "nothing"
    run(core, 28, clock)
    assert order(core.reporter, "end_zombies", "try").code == "nothing"
    run(core, 5, clock)
    while not core.output_queue.empty():
        core.output_queue.get_nowait()
    result = order(core.reporter, "end_zombies")
    assert (result.code, result.effect["requests"]) == ("done", 1), result
    assert result.effect["after_free_blocks"] > result.effect["before_free_blocks"]
    told = [o for _, outputs in [core.output_queue.get_nowait()] for o in outputs.outputs]
    assert [(o.request_id, o.finish_reason) for o in told] == [(victim.request_id, FinishReason.ABORT)]
    assert victim.request_id not in core.scheduler.requests
    run(core, 3, clock)
    check_queue(core.scheduler.kv_cache_manager.block_pool)
    assert len(core.scheduler.running) == 2


def test_one_long_step_makes_no_zombies(core: Any) -> None:
    clock = [0.0]
    core.options.max_tokens = 1000
    core.add()
    core._process_input_queue()
    run(core, 3, clock)
    core.scheduler.running[0].next_decode_eligible_step = 10**9
    clock[0] += 500.0
    run(core, 3, clock)
    assert order(core.reporter, "end_zombies").code == "nothing"


# -- delayed frees -----------------------------------------------------------------------------------------------


class Delayed:
    """A scheduler of whose requests the KV goes elsewhere, watched as an engine's is, with a clock of its own."""

    def __init__(self, lease: float | None = 10.0) -> None:
        self.scheduler: Any = make_connector_scheduler("RemoteConnector")
        if lease is not None:
            self.scheduler.connector._kv_lease_duration = lease
        engine: Any = SimpleNamespace(
            scheduler=self.scheduler, step_fn=lambda: None, shutdown=lambda: None,
            vllm_config=self.scheduler.vllm_config, model_executor=None, batch_queue=None,
        )  # fmt: skip
        self.engine = Engine()
        vars(self.engine).update(vars(engine))
        self.reporter = hook.attach(self.engine, SETTINGS)
        self.desk: Any = self.reporter._desk

    def later(self, seconds: float) -> None:
        lever = self.desk._levers["reclaim_delayed"]
        now = lever._now()
        lever._now = lambda: now + seconds

    def send(self, number: int, **kwargs: Any) -> None:
        self.scheduler.add_request(make_remote_request(number, 40, 2, **kwargs))

    @property
    def free(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())


class Engine:
    """What holds a scheduler."""


@pytest.fixture
def delayed() -> Iterator[Callable[..., Delayed]]:
    made: list[Delayed] = []

    def make(**kwargs: Any) -> Delayed:
        made.append(Delayed(**kwargs))
        return made[-1]

    yield make
    for one in made:
        one.reporter.close()


def test_what_nobody_fetches_comes_free_long_after_the_lease_and_a_late_signal_does_no_harm(
    delayed: Callable[..., Delayed],
) -> None:
    bed = delayed()
    bed.send(0, decode=True)
    bed.send(1)
    for _ in range(5):
        step(bed.scheduler)
    assert list(bed.scheduler.requests) == ["r0"]
    before = bed.free
    assert order(bed.reporter, "reclaim_delayed").code == "nothing"
    bed.later(15.0)  # past the lease, not past its double
    assert order(bed.reporter, "reclaim_delayed", "try").code == "nothing"
    bed.later(6.0)
    assert order(bed.reporter, "reclaim_delayed", age_seconds=11).code == "bad_argument"
    result = order(bed.reporter, "reclaim_delayed")
    assert (result.code, result.effect["requests"], result.effect["entries"]) == ("done", 1, 3), result
    assert bed.free == before + 3
    assert bed.scheduler.requests == {}
    bed.send(2)
    step(bed.scheduler, sent=["r0"])  # would kill the engine
    for _ in range(3):
        step(bed.scheduler)
    check_queue(bed.scheduler.kv_cache_manager.block_pool)
    assert bed.scheduler.requests == {}


def test_a_signal_about_one_that_was_not_reclaimed_still_arrives(delayed: Callable[..., Delayed]) -> None:
    bed = delayed()
    for number in range(2):
        bed.send(number, decode=True)
        for _ in range(4):
            step(bed.scheduler)
        if number == 0:
            bed.later(21.0)
            assert order(bed.reporter, "reclaim_delayed").code == "done"
    bed.send(3)
    step(bed.scheduler, sent=["r0", "r1"])
    assert "r1" not in bed.scheduler.requests
    with pytest.raises(AssertionError):
        step(bed.scheduler, sent=["r9"])  # of nobody's doing: vLLM's own check stands


def test_what_was_to_be_received_is_never_freed(delayed: Callable[..., Delayed]) -> None:
    from vllm.v1.request import RequestStatus

    bed = delayed()
    bed.send(0, prefill="peer")
    step(bed.scheduler)
    bed.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    assert "r0" in bed.scheduler.requests
    bed.later(1000.0)
    assert order(bed.reporter, "reclaim_delayed").code == "nothing"


def test_a_connector_that_does_not_say_when_it_gives_up_is_not_overruled(delayed: Callable[..., Delayed]) -> None:
    bed = delayed(lease=None)
    assert order(bed.reporter, "reclaim_delayed").code == "unsupported"
    assert order(bed.reporter, "reclaim_orphans").code in ("unsafe", "unsupported")


# -- the allocator's reserve ---------------------------------------------------------------------------------------


class Cuda(FakeTorch):
    """The bed's torch, with the calls that trimming makes."""

    uint8 = "uint8"

    def __init__(self, bed: AllocatorBed) -> None:
        super().__init__(bed)
        self.cuda.memory_reserved = lambda device: bed.reserved
        self.cuda.memory_allocated = lambda device: self._stats(0)["allocated_bytes"]["all"]["current"]
        self.cuda.synchronize = lambda device: None
        self.cuda.empty_cache = self._empty_cache
        self.cuda.OutOfMemoryError = MemoryError

    def _empty_cache(self) -> None:
        bed = self.beds[0]
        for segment in list(bed.segments):
            if all(block.state == "inactive" for block in segment.blocks):
                for block in segment.blocks:
                    bed._unshelve(block)
                bed.segments.remove(segment)
                bed.reserved -= segment.size

    def empty(self, size: int, device: Any = 0, **where: Any) -> int:
        """Nobody keeps it: it is free again at once."""
        address = self.beds[0].alloc(size)
        self.beds[0].free(address)
        return address


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> tuple[AllocatorBed, Any]:
    """A device with 1 GiB in use and 3 GiB idle, of which 1 GiB is what profiling counted on."""
    bed = AllocatorBed(capacity=8 * GIB)
    kept = [bed.alloc(512 * MIB) for _ in range(2)]
    for address in [bed.alloc(512 * MIB) for _ in range(6)]:
        bed.free(address)
    assert len(kept) == 2
    monkeypatch.setitem(sys.modules, "torch", Cuda(bed))
    return bed, SimpleNamespace(device=0, peak_activation_memory=GIB)


def lever_over(*workers: Any, device: str = "cuda") -> Trim:
    executor = SimpleNamespace(collective_rpc=lambda method, args=(): [method(worker, *args) for worker in workers])
    config = SimpleNamespace(device_config=SimpleNamespace(device_type=device))
    return Trim(SimpleNamespace(engine=SimpleNamespace(vllm_config=config, model_executor=executor)))  # type: ignore[arg-type]


def test_what_is_idle_beyond_the_profiled_head_room_goes_back(cuda: tuple[AllocatorBed, Any]) -> None:
    bed, worker = cuda
    lever = lever_over(worker)
    assert lever.would({})["spare_bytes"] == 2 * GIB
    assert bed.reserved == 4 * GIB
    effect = lever.apply({}).effect
    assert effect == {
        "before_reserved_bytes": 4 * GIB,
        "after_reserved_bytes": 2 * GIB,
        "bytes": 2 * GIB,
        "head_room_lost_bytes": 0,
    }
    with pytest.raises(RefusedError, match="head-room"):
        lever.apply({})
    assert bed.reserved == 2 * GIB


def test_the_head_room_itself_is_not_given_away(cuda: tuple[AllocatorBed, Any]) -> None:
    bed, worker = cuda
    worker.peak_activation_memory = 3 * GIB
    with pytest.raises(RefusedError, match="head-room"):
        lever_over(worker).apply({})
    assert bed.reserved == 4 * GIB


def test_all_workers_are_asked_before_any_is_trimmed(cuda: tuple[AllocatorBed, Any]) -> None:
    bed, worker = cuda
    unknown = SimpleNamespace(device=0)
    with pytest.raises(RefusedError, match="recorded"):
        lever_over(worker, unknown).apply({})
    assert bed.reserved == 4 * GIB
    assert "error" in look(unknown)
    assert "error" in trim(unknown, 0)


def test_without_a_device_allocator_it_is_unsupported() -> None:
    with pytest.raises(RefusedError, match="runs on cpu"):
        lever_over(device="cpu")
