"""A made-up node: engines, their processes on GPUs, the host around them, and the agent that sees all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from agent.oom.log import Failure
from agent.sources.base import SourceState
from agent.sources.device.state import DevicesState, GpuMemory, GpuProcess, GpuProcesses, GpuState, Utilisation, Xid
from agent.sources.host.inputs import Start
from agent.sources.host.restarts import remember, restarts
from agent.sources.host.state import DeadHolder, HostState, KilledState
from agent.sources.scrape.state import ScrapedEngine, ScrapedState
from agent.state import AgentState, LinkState, MemberState
from agent.waterfall.build import waterfalls
from bench.corpus.clock import Clock, Tick
from bench.corpus.engine import Engine
from bench.corpus.host import Cgroup, Process
from bench.corpus.report import report
from bench.corpus.torch import GIB, MIB, Torch
from engine_hooks.members import FrontendRow

_LINK = LinkState(
    socket="/run/kvtide/agent.sock", connections=3, accepted=3, frames=1, rejected_frames={}, refused_peers={}
)


class Card:
    """One GPU. ``rest``: what the driver has handed out and books on nobody; ``foreign``: by pid, of processes that
    don't report.
    """

    def __init__(self, rng: Random, gpu: str = "0", total: int = 80 * GIB) -> None:
        self.rng = Random(rng.getrandbits(64))
        self.gpu, self.total = gpu, total
        self.reserved = int(self.rng.uniform(350, 900)) * MIB
        self.rest = int(self.rng.uniform(5, 60)) * MIB
        self.foreign: dict[int, int] = {}
        self.lost = self.silent = ""
        self.xids: tuple[Xid, ...] = ()
        self.said_more = 0  # bytes that the driver counts as used, and that are not there

    def state(self, booked: dict[int, int], busy: float) -> GpuState:
        """Return what the driver says; ``booked``: bytes by pid."""
        if self.lost:
            return GpuState(
                gpu=self.gpu, uuid=f"GPU-{self.gpu}", name="H100", index=int(self.gpu), lost=self.lost, xids=self.xids
            )
        if self.silent:
            return GpuState(gpu=self.gpu, uuid=f"GPU-{self.gpu}", name="H100", index=int(self.gpu), silent=self.silent)
        booked = {**booked, **self.foreign}
        used = min(self.total - self.reserved, sum(booked.values()) + self.rest)
        return GpuState(
            gpu=self.gpu,
            uuid=f"GPU-{self.gpu}",
            name="NVIDIA H100 80GB HBM3",
            index=int(self.gpu),
            memory=GpuMemory(
                total=self.total,
                used=used + self.said_more,
                free=self.total - self.reserved - used,
                reserved=self.reserved,
            ),
            processes=GpuProcesses(
                rows=tuple(GpuProcess(pid=pid, used_bytes=size, kind="C") for pid, size in booked.items()),
                count=len(booked),
            ),
            utilisation=Utilisation(gpu=min(1.0, busy), memory=min(1.0, 0.6 * busy)),
            mig=False,
            xids=self.xids,
        )


class Node:
    """Everything of one node; a scenario changes its parts from tick to tick by ``act``.

    ``workers``: of each engine, by its name; ``trainers``: PyTorch processes of no engine, by name.
    """

    def __init__(self, rng: Random, clock: Clock) -> None:
        self.rng, self.clock = Random(rng.getrandbits(64)), clock
        self.engines: list[Engine] = []
        self.phases: dict[str, tuple[str, str]] = {}
        self.gone: set[str] = set()
        self.workers: dict[str, list[Torch]] = {}
        self.trainers: dict[str, Torch] = {}
        self.cards: list[Card] = []
        self.hookless = False  # its engines report nothing themselves
        self.pages: list[Callable[[Tick], ScrapedEngine]] = []
        self.processes: list[Process] = []
        self.cgroups: list[Cgroup] = []
        self.dead: list[DeadHolder] = []
        self.killed: list[KilledState] = []
        self.failures: list[Failure] = []
        self.down: dict[str, str] = {}  # sources that are not up, and why
        self.absent: set[str] = set()  # of those: there is nothing for them to read
        self.memory_total = 512 * GIB
        self.memory_used = int(self.rng.uniform(0.1, 0.4) * self.memory_total)
        self.oom_kills = 0
        self.busy = 0.5
        self._history: dict[str, tuple[Start, ...]] = {}

    def run(self, act: Callable[[Tick], None] | None = None) -> Iterator[AgentState]:
        """Yield the node's states; ``act`` is called before each, with its tick."""
        for tick in self.clock:
            if act is not None:
                act(tick)
            yield self.at(tick)

    def at(self, tick: Tick) -> AgentState:
        """Let time pass up to ``tick`` and return the state then."""
        for engine in self.engines:
            if not engine.started_at:
                engine.started_at = tick.at - self.rng.uniform(600, 90_000)
            if engine.name not in self.gone:
                engine.step(tick)
        self.busy = max((len(one.running) / max(8, one.most_running) for one in self.engines), default=0.4)
        for torch in self._torches():
            torch.step(tick, self.busy)
        for engine in self.engines:
            engine.members = self._members(engine, tick)
        engines = tuple(
            report(engine, tick, phase=phase, reason=reason)
            for engine in self.engines
            if engine.name not in self.gone and not self.hookless
            for phase, reason in [self.phases.get(engine.name, ("live", ""))]
        )
        processes = tuple(torch.trainer(tick, name) for name, torch in self.trainers.items())
        device = self._devices() if self.cards and "device" not in self.down else None
        host = self._host(tick) if "host" not in self.down else None
        more: dict[str, Any] = {}
        if device is not None and (engines or processes):
            more["waterfalls"] = waterfalls(device.gpus, engines, processes, host_pids=True)
        pages = tuple(page(tick) for page in self.pages)
        return AgentState(
            at=tick.at,
            monotonic=tick.monotonic,
            version="0.1.0",
            started_at=tick.at - tick.t - 5.0,
            ready=True,
            not_ready_reason="",
            link=_LINK,
            engines=engines,
            sources=tuple(self._sources()),
            device=device,
            host=host,
            scrape=ScrapedState(engines=pages) if pages and "scrape" not in self.down else None,
            processes=processes,
            failures=tuple(sorted(self.failures, key=lambda failure: -failure.event.at)),
            **more,
        )

    def restart(self, engine: Engine, tick: Tick) -> None:
        """Let ``engine`` begin anew: another process, in the same place."""
        engine.restart(tick.at)
        for torch in self.workers.get(engine.name, []):
            torch.pid += 17
            torch.started_at = tick.at
        for process in self.processes:
            if process.engine == engine.name:
                process.restart(tick.at)

    def _torches(self) -> Iterator[Torch]:
        for engine in self.engines:
            if engine.name not in self.gone:
                yield from self.workers.get(engine.name, [])
        yield from self.trainers.values()

    def _members(self, engine: Engine, tick: Tick) -> tuple[MemberState, ...]:
        workers = [torch.worker(tick, rank) for rank, torch in enumerate(self.workers.get(engine.name, []))]
        front = MemberState(
            role="frontend",
            rank=0,
            pid=engine.pid - 1,
            own_pid=engine.pid - 1,
            pid_namespace=4026531836,
            host="node",
            started_at=engine.started_at,
            up=True,
            link_up=True,
            heard_age_seconds=0.3,
            resident_bytes=900 * MIB,
            worker=None,
            frontend=FrontendRow(count=1, requests=len(engine.running) + len(engine.waiting)),
        )
        return (*workers, front)

    def _devices(self) -> DevicesState:
        booked: dict[str, dict[int, int]] = {card.gpu: {} for card in self.cards}
        for torch in self._torches():
            booked[torch.gpu][torch.pid] = torch.booked
        for row in self.dead:
            booked[row.gpu][row.pid] = row.used_bytes
        gpus = tuple(card.state(booked[card.gpu], self.busy) for card in self.cards)
        return DevicesState(driver="580.95.05", cuda_driver="13.0", gpus=gpus)

    def _host(self, tick: Tick) -> HostState:
        processes = tuple(process.state(tick) for process in self.processes if process.engine not in self.gone)
        cgroups = tuple(cgroup.state(tick) for cgroup in self.cgroups)
        used = self.memory_used + sum(process.resident_bytes or 0 for process in processes)
        starts = [
            Start(engine=engine.name, instance=engine.instance, started_at=engine.started_at)
            for engine in self.engines
            if engine.name not in self.gone and not self.hookless
        ]
        # Times of starts are the wall clock's, as they are in a real node.
        self._history = remember(self._history, starts, tick.at)
        present = {engine.name for engine in self.engines if engine.name not in self.gone}
        return HostState(
            processes=processes,
            cgroups=cgroups,
            restarts=restarts(self._history, present, tick.at),
            killed=tuple(self.killed),
            kills_total={engine.name: sum(row.engine == engine.name for row in self.killed) for engine in self.engines},
            dead=tuple(self.dead),
            dead_bytes={
                card.gpu: sum(row.used_bytes for row in self.dead if row.gpu == card.gpu) for card in self.cards
            },
            memory={
                "total": self.memory_total,
                "available": max(0, self.memory_total - used),
                "swap_total": 0,
                "swap_free": 0,
            },
            shm={"size": self.memory_total // 2, "used": 50 * MIB},
            oom_kills_total=self.oom_kills,
            host_pids=True,
        )

    def _sources(self) -> Iterator[SourceState]:
        for name in ("device", "host", *(("scrape",) if self.pages else ())):
            why = self.down.get(name, "")
            yield SourceState(
                source=name,
                up=not why,
                reason=why,
                absent=name in self.absent,
                reads=60,
                failures=5 if why else 0,
                read_seconds=0.004,
                age_seconds=30.0 if why else 0.5,
            )
