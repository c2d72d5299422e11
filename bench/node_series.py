"""States of a busy, healthy node: counters that grow, histograms that fill, sizes that move a little."""

from __future__ import annotations

import random
from collections.abc import Iterator

from msgspec.structs import replace

from agent.sources.device.state import DevicesState
from agent.state import AgentState, EngineState
from engine_hooks.detail import Detail, Histogram, TenantRow
from tests.unit.builders import make_engine, make_frontend, make_hooks, make_pool, make_state, make_worker
from tests.unit.details import make_allocation, make_group, make_work
from tests.unit.node_builders import MIB, make_gpu, make_host, make_process, make_waterfall

TENANTS = 8
CAPACITY = 10_000
_BOUNDS = tuple(0.00001 * 2**power for power in range(14))


class _Filling:
    """A histogram that fills."""

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS) + 1)
        self._sum = 0.0

    def step(self, chance: random.Random) -> Histogram:
        for _ in range(chance.randrange(3)):
            self._counts[chance.randrange(5)] += chance.randrange(9)
            self._sum += chance.random() / 1000
        return Histogram(bounds=_BOUNDS, counts=tuple(self._counts), sum=self._sum)


class _Engine:
    def __init__(self, number: int, chance: random.Random) -> None:
        self._number, self._chance = number, chance
        self._histograms = [_Filling() for _ in range(3 + 2 * TENANTS)]
        self._totals = [chance.randrange(10**6) for _ in range(6 + 4 * TENANTS)]
        self._held = 3000

    def step(self, monotonic: float) -> EngineState:
        chance = self._chance
        self._totals = [total + chance.randrange(2000) for total in self._totals]
        self._held = max(10, min(9000, self._held + chance.randrange(-100, 101)))
        held, totals = self._held, self._totals
        pool = make_pool(
            **{"capacity": CAPACITY, "held": held, "held_min": held - 3, "held_max": held + 9},
            **{"cached_idle": 500, "empty": CAPACITY - 500 - held, "orphaned": 0, "over_freed": 0},
            **{"delayed": 0, "deferred": 0, "pinned": 0},
        )
        worker = make_worker(heard_age_seconds=chance.random(), resident_bytes=4000 * MIB + totals[0])
        return make_engine(
            engine=f"m{self._number}",
            engine_id=f"e{self._number}",
            instance=f"i{self._number}",
            pool=pool,
            detail=self._detail(monotonic),
            hooks=make_hooks(errors={}, off={}, dropped_frames=0),
            steps=totals[1],
            waiting=0,
            report_sequence=totals[2],
            report_age_seconds=chance.random(),
            verdicts=(),
            members=(worker, make_frontend(heard_age_seconds=chance.random())),
        )

    def _detail(self, monotonic: float) -> Detail:
        chance, totals = self._chance, self._totals
        block, wait, request, *of_tenants = (each.step(chance) for each in self._histograms)
        tenants = tuple(
            TenantRow(
                tenant=f"tenant-{number}",
                running=chance.randrange(9),
                waiting=0,
                held=self._held / TENANTS + chance.random(),
                references=chance.randrange(900),
                requests_total=totals[6 + number],
                prompt_tokens_total=totals[14 + number],
                generated_tokens_total=totals[22 + number],
                preempted_total=0,
                ended_total={"stopped": totals[30 + number], "length": 7},
                sessions=4,
                session_lifetime_seconds=of_tenants[2 * number],
                session_idle_seconds=of_tenants[2 * number + 1],
                held_age_seconds=chance.random(),
            )
            for number in range(TENANTS)
        )
        allocation = make_allocation(
            block_seconds=block,
            wait_seconds=wait,
            blocks_taken_total=totals[0],
            blocks_given_back_total=totals[1],
            waiting_refused=0,
            consecutive_refusals=0,
            oldest_refused_seconds=None,
        )
        work = make_work(request_seconds=request, scheduled_tokens_total=totals[3], prefill_tokens_total=totals[4])
        return Detail(
            monotonic=monotonic,
            pools=(),
            groups=(make_group(),),
            leaks=(),
            delayed=(),
            pins=(),
            tenants=tenants,
            allocation=allocation,
            work=work,
        )


def series(seconds: int, size: int, seed: int = 1) -> Iterator[AgentState]:
    """Yield the states of a node with ``size`` engines and as many GPUs."""
    chance = random.Random(seed)
    engines = [_Engine(number, chance) for number in range(size)]
    nothing = {"failures": (), "failure_counts": (), "processes": (), "scrape": None}
    for second in range(seconds):
        monotonic = 50_000.0 + second
        gpus = []
        for number in range(size):
            used = (61_440 + chance.randrange(-8, 9)) * MIB
            gpu = make_gpu(str(number), xids=())
            memory = replace(gpu.memory, used=used, free=81_320 * MIB - used) if gpu.memory else None
            gpus.append(replace(gpu, memory=memory))
        host = make_host(
            processes=tuple(
                make_process(engine=f"m{number}", role=role, resident_bytes=(5000 + chance.randrange(9)) * MIB)
                for number in range(size)
                for role in ("core", "worker", "frontend")
            ),
            **{"killed": (), "kills_total": {}, "restarts": (), "dead": (), "dead_bytes": {}},
        )
        yield make_state(
            *(engine.step(monotonic) for engine in engines),
            at=1.7e9 + second,
            monotonic=monotonic,
            device=DevicesState(driver="580.95.05", cuda_driver="13.0", gpus=tuple(gpus)),
            host=host,
            waterfalls=tuple(make_waterfall(gpu=str(number)) for number in range(size)),
            judgement=None,
            **nothing,
        )
