"""Tenants: one that crowds the others out, one that evicts what others have cached, and work that changes."""

from __future__ import annotations

from random import Random

from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.requests import Tenant
from bench.corpus.scenario import Label, Made, Recipe

ENGINE = Subject(scope="engine", engine="m")
OF_LOAD = frozenset({"preemption_thrash", "kv_pressure", "tenant_surge", "workload_shift", "eviction_storm"})


def multiplied(tenant: Tenant, times: list[float]) -> None:
    """Let what a tenant sends be multiplied by ``times[0]``, which may change."""
    before = tenant.rate
    tenant.rate = lambda t: before(t) * times[0]


def surge(rng: Random) -> Made:
    """One tenant sends many times as much, and the others wait for memory."""
    clock = Clock(rng, 25 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.55, daily=False, tenants=rng.randint(2, 4), capacity=rng.choice((8_000, 20_000)))
    node.engine.speed.prefill *= 4  # so that it is memory that they wait for
    tenant, times = node.tenants[-1], [1.0]
    multiplied(tenant, times)
    onset, most = rng.uniform(12, 18) * MINUTE, rng.uniform(3.5, 6.0) * len(node.tenants)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.crowd()
        times[0] = most if tick.t >= onset else 1.0

    subject = Subject(scope="tenant", engine="m", tenant=tenant.name)
    return Made(node.run(act), (Label("tenant_surge", clock.monotonic(onset), None, subject, 6 * MINUTE, OF_LOAD),))


def more_of_one(rng: Random) -> Made:
    """A small tenant doubles or trebles, and there is room for it."""
    clock = Clock(rng, 30 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3, daily=False, tenants=rng.randint(3, 4), capacity=45_000)
    times, onset, most = [1.0], rng.uniform(10, 18) * MINUTE, rng.uniform(1.8, 3.0)
    multiplied(node.tenants[-1], times)

    def act(tick: Tick) -> None:
        times[0] = most if tick.t >= onset else 1.0

    return Made(node.run(act))


def storm(rng: Random) -> Made:
    """One tenant's prompts, each other than the last, push out what others would have used again: 30 % and more of
    what is prefilled had been there.
    """
    clock = Clock(rng, 28 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, daily=False, tenants=3, capacity=20_000)
    onset, share, times = rng.uniform(10, 14) * MINUTE, rng.uniform(0.5, 0.8), [1.0]
    multiplied(node.tenants[-1], times)
    before = [tenant.reuse for tenant in node.tenants]
    for n, reuse in enumerate(before):
        node.tenants[n].reuse = before[n] = max(reuse, 0.5)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            times[0] = 1.5
            node.engine.evicted_share = share
            for tenant in node.tenants:
                tenant.reuse = 0.05

    return Made(node.run(act), (Label("eviction_storm", clock.monotonic(onset), None, ENGINE, 10 * MINUTE, OF_LOAD),))


def some_evicted(rng: Random) -> Made:
    """A few per cent are computed again, as in any cache."""
    clock = Clock(rng, 3 * HOUR, 15.0)
    node = Serving(rng, clock, load=0.5, daily=False, tenants=3)
    node.engine.evicted_share = rng.uniform(0.0, 0.05)
    return Made(node.run())


def longer(rng: Random) -> Made:
    """Contexts become five to eight times as long, for good, after hours of the usual."""
    clock = Clock(rng, 6.5 * HOUR, 30.0)
    node = Serving(rng, clock, load=0.15, daily=False, prompt=rng.uniform(300, 900), capacity=20_000)
    onset, times = rng.uniform(3.5, 4.5) * HOUR, rng.uniform(5, 8)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            for tenant, prompt in zip(node.tenants, prompts, strict=True):
                tenant.prompt = prompt * times

    prompts = [tenant.prompt for tenant in node.tenants]
    return Made(node.run(act), (Label("workload_shift", clock.monotonic(onset), None, ENGINE, 45 * MINUTE, OF_LOAD),))


def changing_by_the_hour(rng: Random) -> Made:
    """Contexts are a third longer by day than by night."""
    clock = Clock(rng, 30 * HOUR, 60.0)
    node = Serving(rng, clock, load=0.4)
    prompts = [tenant.prompt for tenant in node.tenants]

    def act(tick: Tick) -> None:
        for tenant, prompt in zip(node.tenants, prompts, strict=True):
            tenant.prompt = prompt * (0.8 + 0.3 * min(1.5, node.hour(tick.t)))

    return Made(node.run(act))


RECIPES = (
    Recipe("surge", "tenants", "tenant_surge", surge, 4, 12),
    Recipe("storm", "tenants", "eviction_storm", storm, 0, 6, unseen=True),
    Recipe("longer contexts", "tenants", "workload_shift", longer, 2, 7, long=True),
    Recipe("more of one tenant", "tenants", "", more_of_one, 2, 7),
    Recipe("some evicted", "tenants", "", some_evicted, 1, 4, long=True),
    Recipe("changing by the hour", "tenants", "", changing_by_the_hour, 1, 3, long=True),
)
