"""One run: the engine's loop, with virtual time, its load, and what is planted in it."""

from __future__ import annotations

import os
import random
from typing import IO, Any

import msgspec

from engine_hooks.simulator import pipe
from engine_hooks.simulator.clock import MONOTONIC_START, VirtualClock
from engine_hooks.simulator.core import ABORT, ADD, SimulatedCore
from engine_hooks.simulator.link import Links
from engine_hooks.simulator.load import Arrival, Load
from engine_hooks.simulator.model import make_hasher
from engine_hooks.simulator.spec import Spec, Truth
from engine_hooks.simulator.transfers import Transfers, transfer_params
from engine_hooks.simulator.world import World

FLUSH_SECONDS = 60.0
DOWN_SECONDS = 0.25  # between two looks while no engine is up
MAX_WAITING = 1000


class Run:
    """Runs one spec and writes what the agent's side is to hear to ``out``."""

    def __init__(self, spec: Spec, clock: VirtualClock, out: IO[bytes]) -> None:
        from engine_hooks.simulator.events import EVENTS
        from engine_hooks.simulator.faults.registry import FAULTS

        clock.restart(spec.start)
        self._spec = spec
        self._clock = clock
        self._out = out
        # One stream of chance for each: more of one does not change the other.
        self._chance, self._worker = _stream("engine", spec), _stream("worker", spec)
        self._load = Load(spec, _stream("load", spec))
        self._world = World(spec, clock, self._load, _stream("world", spec), self._tell)
        self._world.restart = self._go_down
        self._plants = [FAULTS[fault.kind](self._world, fault, n) for n, fault in enumerate(spec.faults)]
        self._events = [EVENTS[event.kind](self._world, event, n) for n, event in enumerate(spec.events)]
        self._links = Links(out, clock, self._instance)
        self._started = 0
        self._link: Any = None
        self._hasher = make_hasher(spec.engine)
        self._up_again: float | None = None
        self._flush = 0.0

    def run(self) -> None:
        """Run it to its end."""
        world, clock = self._world, self._clock
        self._start()
        while (now := world.now()) < self._spec.seconds:
            came, gone = self._load.due(now), self._load.leavers(now)
            for plant in self._plants:
                plant.tick()
            for event in self._events:
                event.tick()
            if world.core is not None:
                self._serve(world.core, came, gone)
            else:
                clock.now += DOWN_SECONDS
                if self._up_again is not None and world.now() >= self._up_again:
                    self._start()
            if now >= self._flush:
                self._flush = now + FLUSH_SECONDS
                self._out.flush()
        if world.core is not None:
            world.core.shutdown()
        pipe.write(self._out, pipe.Item(clock.now, pipe.END))
        self._out.flush()

    def _serve(self, core: SimulatedCore, came: list[Arrival], gone: list[str]) -> None:
        """Give the engine what clients ask, and let it do a step; if it has nothing to do, time passes."""
        clock = self._clock
        for arrival in came:
            # With so many waiting the front end refuses: so memory is bounded, here as there.
            if len(core.scheduler.waiting) + len(core.input_queue) < MAX_WAITING:
                core.input_queue.put_nowait((ADD, self._request(arrival)))
        if gone:
            core.input_queue.put_nowait((ABORT, gone))
        if self._world.transfers is not None:
            self._world.transfers.tick()
        if clock.now >= self._link.next_tick:
            self._link.tick()
        if not core.run_busy_loop():
            core.tokens = 0
            clock.now = max(clock.now + 0.001, min(self._link.next_tick, MONOTONIC_START + self._spec.seconds))

    # -- the engine ----------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Bring an engine up, with the hooks, as in its own process."""
        from engine_hooks.simulator.watching import watch

        engine, world = self._spec.engine, self._world
        self._up_again = None
        self._started += 1
        core = SimulatedCore(engine, self._clock, self._worker, self._load.finished)
        # The hooks read the connector's lease when they come.
        connector = core.scheduler.connector
        transfers = None if connector is None else Transfers(core, self._chance, world.now)
        for plant in self._plants:
            plant.prepare(core)
        self._link = watch(core, self._links, self._clock)
        world.core, world.transfers = core, transfers
        for plant in self._plants:
            plant.ready(core)

    def _go_down(self, seconds: float) -> None:
        core = self._world.core
        if core is not None:
            core.shutdown()
            self._world.core = self._world.transfers = None
            self._load.forget()
            self._up_again = self._world.now() + seconds

    def _instance(self) -> str:
        return f"{self._spec.seed & 0xFFFF_FFFF:08x}{self._started:08x}"

    # -- requests ------------------------------------------------------------------------------------------

    def _request(self, arrival: Arrival) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        from engine_hooks.core.marks import MARKS_KEY, front_marks

        shape = arrival.shape
        extra: dict[str, Any] = {MARKS_KEY: front_marks(arrival.tenant, shape.session)}
        params = transfer_params(self._chance) if self._spec.engine.connector == "remote" else None
        if params is not None:
            extra["kv_transfer_params"] = params
        request = Request(
            request_id=arrival.key,
            prompt_token_ids=shape.prompt,
            sampling_params=SamplingParams(max_tokens=shape.output, ignore_eos=True, extra_args=extra),
            pooling_params=None,
            block_hasher=self._hasher,
            priority=0 if arrival.urgent else 1,
            **_without_end(Request),
        )
        if params is not None:
            request.kv_transfer_params = dict(params)
        return request

    def _tell(self, truth: Truth) -> None:
        pipe.write(self._out, pipe.Item(self._clock.now, pipe.TRUTH, msgspec.msgpack.encode(truth)))


def _stream(name: str, spec: Spec) -> random.Random:
    return random.Random(f"{name} {spec.seed}")  # noqa: S311 - nothing is kept secret by it


def _without_end(request: Any) -> dict[str, Any]:
    """What older versions of vLLM want to be told: no token ends a text."""
    return {"eos_token_id": None} if "eos_token_id" in request.__init__.__code__.co_varnames else {}


def quiet_environment() -> None:
    """Have vLLM stay on this machine and say little; before it is imported."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        os.environ[name] = "1"
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
