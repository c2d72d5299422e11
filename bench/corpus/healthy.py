"""Nodes that serve as they should: where every scenario starts from."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from bench.corpus.clock import Clock
from bench.corpus.engine import Engine, Speed
from bench.corpus.host import Cgroup, Process
from bench.corpus.load import Day
from bench.corpus.node import Card, Node
from bench.corpus.requests import Tenant
from bench.corpus.torch import GIB, MIB, Torch

_SLOTS = 1_024
NAMES = ("acme", "bluebird", "cobalt", "delta", "ember")


class Serving(Node):
    """One engine ``m`` on ``ranks`` GPUs, with tenants, a front end, a cgroup; ``load``: share of what fills it.

    ``balanced``: a router sends elsewhere what would not find room here, so that load alone harms nobody.
    """

    def __init__(
        self,
        rng: Random,
        clock: Clock,
        *,
        load: float | None = None,
        ranks: int = 1,
        tenants: int | None = None,
        daily: bool = True,
        limit: int | None = 200 * GIB,
        speculative: bool = False,
        prompt: float | None = None,
        capacity: int | None = None,
        balanced: bool = True,
    ) -> None:
        super().__init__(rng, clock)
        load = rng.uniform(0.25, 0.8) if load is None else load
        number = rng.randint(1, 4) if tenants is None else tenants
        # Over hours and days few, long requests do as well as many short ones, and are made much faster.
        coarse = clock.period >= 5 and prompt is None
        if coarse:
            prompt, capacity = rng.uniform(2_000, 4_000), 8_000
        prompt = rng.uniform(300, 2_500) if prompt is None else prompt
        output = rng.uniform(500, 1_000) if coarse else rng.uniform(120, 500)
        self.output = output
        capacity = rng.choice((8_000, 20_000, 45_000)) if capacity is None else capacity
        # Blocks of one request in the middle of its life, and how long it lives, give the rate that fills the pool.
        speed = Speed(prefill=rng.uniform(20_000, 60_000), decode=rng.uniform(30, 90))
        each = (prompt * 1.28 + output * 0.64) / 16
        running = min(220.0, load * capacity / each)
        life = output * 1.28 * (1 + running / speed.batch) / speed.decode
        self.day = Day(rng) if daily else Day(rng, depth=0.0)
        # Neither the busiest hour nor the prompts' reading may be more than it can do, or it is not healthy.
        self.rate = min(running / life / self.day.peak, 0.55 * speed.prefill / (prompt * 1.28))
        self.times = 1.0
        self._asked, self._share = -1.0, 1.0
        shares = [rng.uniform(0.4, 1.6) for _ in range(number)]
        self.tenants = [
            Tenant(
                NAMES[n],
                self._rate(share / sum(shares)),
                prompt=prompt,
                output=output,
                spread=rng.uniform(0.4, 0.8),
                reuse=rng.uniform(0.1, 0.6),
            )
            for n, share in enumerate(shares)
        ]
        total = rng.choice((24, 40, 80)) * GIB
        weights, context = int(total * rng.uniform(0.15, 0.4)), int(rng.uniform(300, 900)) * MIB
        work, graphs = int(total * rng.uniform(0.01, 0.04)), int(rng.uniform(0.3, 2.4) * GIB)
        kv = int(total * rng.uniform(0.84, 0.90)) - weights - work - graphs - context - 600 * MIB
        self.engine = Engine(
            rng,
            self.tenants,
            capacity=capacity,
            most_running=256,
            speed=speed,
            block_bytes=max(4096, kv // capacity),
            speculative=speculative,
        )
        self.engine.most_held = 0.9 if balanced else math.inf
        self.engines.append(self.engine)
        ranked = []
        for rank in range(ranks):
            self.cards.append(Card(rng, str(rank), total))
            # The first rank of several has the samplers' and the others' contexts.
            extra = int(rng.uniform(100, 500)) * MIB if ranks > 1 and rank == 0 else 0
            ranked.append(
                Torch(
                    rng,
                    gpu=str(rank),
                    weights=weights,
                    kv=kv,
                    graphs=graphs,
                    work=work,
                    context=context + extra,
                )
            )
        for torch in ranked:
            torch.kv_blocks = capacity + 1
        self.workers["m"] = ranked
        self.core = Process(rng, "m", "core", self.engine.pid, base=int(rng.uniform(2, 6) * GIB))
        self.front = Process(
            rng, "m", "frontend", self.engine.pid - 1, base=int(rng.uniform(0.6, 1.5) * GIB), wobble=0.02
        )
        hosts = [Process(rng, "m", "worker", one.pid, base=int(rng.uniform(3, 9) * GIB)) for one in ranked]
        for rank, process in enumerate(hosts):
            process.rank = rank
        self.hosts = hosts
        self.processes += [self.core, self.front, *hosts]
        self.cgroup = Cgroup(rng, "m", self.processes, limit)
        self.cgroups.append(self.cgroup)
        self._warm()

    def _rate(self, share: float) -> Callable[[float], float]:
        def rate(t: float) -> float:
            return self.rate * share * self.times * self.hour(t)

        return rate

    def crowd(self) -> None:
        """From now on all of the load comes here, and memory alone bounds what runs: no router, and slots enough."""
        self.engine.most_held, self.engine.most_running = math.inf, _SLOTS

    def hour(self, t: float) -> float:
        """Return the share of the load that ``t`` seconds after the start have."""
        if t != self._asked:
            self._share = self.day.at(t, max(1.0, t - self._asked))
            self._asked = t
        return self._share

    def _warm(self) -> None:
        """Begin in the middle of the work, not with an empty engine."""
        for _ in range(int(self.rate * 30)):
            tenant = self.rng.choice(self.tenants)
            request = tenant.draw(self.rng)
            if self.engine.used + request.prompt // 16 + 40 < self.engine.capacity * 0.5:
                request.reach(request.prompt + request.output * self.rng.random())
                self.engine.running.append(request)
        self.engine.cached = int((self.engine.capacity - self.engine.used) * self.rng.uniform(0.3, 0.95))
