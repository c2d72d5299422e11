"""More load than there is room for, in other ways than in ``pressure.py`` and ``tenants.py``; their twins."""

from __future__ import annotations

from random import Random

from agent.subject import Subject
from bench.corpus.clock import MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.pressure import ENGINE, OF_LOAD
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.tenants import multiplied


def longer_at_the_same_rate(rng: Random) -> Made:
    """As many requests as ever, each several times as long: within minutes the pool is full and the queue grows."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.6, daily=False, capacity=8_000, prompt=rng.uniform(300, 700))
    onset, times = rng.uniform(4, 6) * MINUTE, rng.uniform(4.0, 7.0)
    node.engine.speed.prefill *= 4
    prompt = node.tenants[0].prompt

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.crowd()
        for tenant in node.tenants:
            tenant.prompt = prompt * (times if tick.t >= onset else 1.0)

    return Made(node.run(act), (Label("kv_pressure", clock.monotonic(onset), None, ENGINE, 6 * MINUTE, OF_LOAD),))


def thrash_by_a_job(rng: Random) -> Made:
    """A batch job is sent at once: hundreds of requests with answers of thousands of tokens; all begin, few can end."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3, daily=False, capacity=8_000, prompt=rng.uniform(150, 400))
    onset, number = rng.uniform(4, 6) * MINUTE, rng.randint(400, 900)
    sent = [False]

    def act(tick: Tick) -> None:
        if tick.t >= onset and not sent[0]:
            sent[0] = True
            node.crowd()
            for _ in range(number):
                request = node.tenants[0].draw(rng)
                request.output = rng.randint(1_500, 5_000)
                request.tenant.requests += 1
                node.engine.waiting.append(request)

    label = Label("preemption_thrash", clock.monotonic(onset), None, ENGINE, 7 * MINUTE, OF_LOAD)
    return Made(node.run(act), (label,))


def job_with_room(rng: Random) -> Made:
    """The same job where the pool has room for what may run of it: a queue for slots, and nothing is lost."""
    clock = Clock(rng, 12 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.1, daily=False, capacity=45_000, prompt=rng.uniform(150, 400), balanced=False)
    onset, number = rng.uniform(3, 5) * MINUTE, rng.randint(70, 200)
    node.engine.most_running = 64
    sent = [False]

    def act(tick: Tick) -> None:
        if tick.t >= onset and not sent[0]:
            sent[0] = True
            for _ in range(number):
                request = node.tenants[0].draw(rng)
                request.output = rng.randint(600, 2_000)
                request.tenant.requests += 1
                node.engine.waiting.append(request)

    return Made(node.run(act))


def surge_of_long_prompts(rng: Random) -> Made:
    """One tenant sends somewhat more and ten times as long prompts; the others wait for the memory these take."""
    clock = Clock(rng, 26 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, daily=False, tenants=3, capacity=20_000, prompt=rng.uniform(400, 900))
    node.engine.speed.prefill *= 4  # so that it is memory that they wait for
    tenant, times, prompt = node.tenants[-1], [1.0], node.tenants[-1].prompt
    multiplied(tenant, times)
    onset, longer, more = rng.uniform(12, 16) * MINUTE, rng.uniform(6, 10), rng.uniform(2.5, 4.0)

    def act(tick: Tick) -> None:
        surges = tick.t >= onset
        if surges:
            node.crowd()
        times[0] = more if surges else 1.0
        tenant.prompt = prompt * (longer if surges else 1.0)

    subject = Subject(scope="tenant", engine="m", tenant=tenant.name)
    return Made(node.run(act), (Label("tenant_surge", clock.monotonic(onset), None, subject, 6 * MINUTE, OF_LOAD),))


def all_tenants_more(rng: Random) -> Made:
    """Everybody sends twice as much at once, as after a break, and there is room: nobody crowds anybody out."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3, daily=False, tenants=rng.randint(2, 4), capacity=45_000)
    onset, most = rng.uniform(7, 12) * MINUTE, rng.uniform(1.6, 2.2)

    def act(tick: Tick) -> None:
        node.times = most if tick.t >= onset else 1.0

    return Made(node.run(act))


def storm_by_scans(rng: Random) -> Made:
    """Each few minutes a scan of documents that nobody asks for twice goes through the cache, and all begin anew."""
    clock = Clock(rng, 22 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, daily=False, tenants=rng.randint(2, 4), capacity=20_000)
    onset, share = rng.uniform(6, 9) * MINUTE, rng.uniform(0.6, 0.9)
    every, long = rng.uniform(200, 300), rng.uniform(140, 180)
    before = [max(0.5, tenant.reuse) for tenant in node.tenants]

    def act(tick: Tick) -> None:
        scans = tick.t >= onset and (tick.t - onset) % every < long
        node.engine.evicted_share = share if scans else 0.02
        for tenant, reuse in zip(node.tenants, before, strict=True):
            tenant.reuse = 0.05 if scans else reuse

    return Made(node.run(act), (Label("eviction_storm", clock.monotonic(onset), None, ENGINE, 10 * MINUTE, OF_LOAD),))


def storm_while_full(rng: Random) -> Made:
    """Sessions outgrow the cache little by little: ever more of each prompt has been evicted when it comes again."""
    clock = Clock(rng, 26 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=rng.uniform(0.5, 0.7), daily=False, tenants=2, capacity=8_000)
    onset, long, most = rng.uniform(5, 8) * MINUTE, rng.uniform(3, 8) * MINUTE, rng.uniform(0.45, 0.8)

    def act(tick: Tick) -> None:
        node.engine.evicted_share = most * min(1.0, max(0.0, (tick.t - onset) / long))
        for tenant in node.tenants:
            tenant.reuse = 0.55 - 0.5 * min(1.0, max(0.0, (tick.t - onset) / long))

    due = long + 8 * MINUTE
    return Made(node.run(act), (Label("eviction_storm", clock.monotonic(onset), None, ENGINE, due, OF_LOAD),))


def cold_cache(rng: Random) -> Made:
    """After a restart nothing is cached: the first minutes compute what was there, once, and nobody evicted it."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng), quiet=True)
    node = Serving(rng, clock, load=0.4, daily=False, tenants=3)
    when, done = rng.uniform(3, 6) * MINUTE, [False]
    before = [tenant.reuse for tenant in node.tenants]

    def act(tick: Tick) -> None:
        if tick.t >= when and not done[0]:
            done[0] = True
            node.restart(node.engine, tick)
        warm = 1.0 if not done[0] else min(1.0, (tick.t - when) / 120)
        for tenant, reuse in zip(node.tenants, before, strict=True):
            tenant.reuse = reuse * warm

    return Made(node.run(act))


RECIPES = (
    Recipe("longer at the same rate", "pressure", "kv_pressure", longer_at_the_same_rate, 2, 5),
    Recipe("thrash by a job", "pressure", "preemption_thrash", thrash_by_a_job, 2, 8),
    Recipe("surge of long prompts", "tenants", "tenant_surge", surge_of_long_prompts, 2, 8),
    Recipe("storm by scans", "tenants", "eviction_storm", storm_by_scans, 0, 7, unseen=True),
    Recipe("storm while full", "tenants", "eviction_storm", storm_while_full, 0, 7, unseen=True),
    Recipe("job with room", "pressure", "", job_with_room, 2, 10),
    Recipe("all tenants send more", "tenants", "", all_tenants_more, 2, 10),
    Recipe("cold cache", "tenants", "", cold_cache, 2, 10),
)
