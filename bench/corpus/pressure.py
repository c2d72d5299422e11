"""Engines with hooks under load: too little memory for what is asked, standstill, and load that only looks like it."""

from __future__ import annotations

from random import Random

from agent.subject import Subject
from bench.corpus.clock import MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.requests import Request
from bench.corpus.scenario import Label, Made, Recipe

ENGINE = Subject(scope="engine", engine="m")
OF_LOAD = frozenset({"preemption_thrash", "kv_pressure", "tenant_surge", "workload_shift", "eviction_storm"})


def overload(rng: Random) -> Made:
    """More requests than the pool can hold: the queue grows behind refused allocations (vllm#23444)."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    # Of shorter prompts more would run than a step can read: a queue, but none for memory.
    capacity = rng.choice((8_000, 20_000))
    node = Serving(rng, clock, load=0.6, daily=False, capacity=capacity, prompt=capacity * rng.uniform(0.045, 0.125))
    node.engine.speed.prefill *= 4  # so that it is memory that they wait for
    onset, times = rng.uniform(6, 10) * MINUTE, rng.uniform(3.0, 5.0)
    ramp = rng.uniform(10, 120)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.crowd()
        node.times = 1.0 + (times - 1.0) * min(1.0, max(0.0, (tick.t - onset) / ramp))

    # First the pool fills: that takes what it takes, and the queue behind it hurts a little later.
    label = Label("kv_pressure", clock.monotonic(onset), None, ENGINE, ramp + 240.0, OF_LOAD)
    return Made(node.run(act), (label,))


def thrash(rng: Random) -> Made:
    """Answers become much longer than the pool has room for: requests are put back again and again."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.75, daily=False, capacity=8_000, prompt=rng.uniform(150, 500))
    onset, times = rng.uniform(6, 9) * MINUTE, rng.uniform(6, 12)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.crowd()
            for tenant in node.tenants:
                tenant.output = node.output * times

    label = Label("preemption_thrash", clock.monotonic(onset), None, ENGINE, 6 * MINUTE, OF_LOAD)
    return Made(node.run(act), (label,))


def _standstill(rng: Random, why: str, fill: float, unfit: int) -> Made:
    clock = Clock(rng, 13 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, balanced=False)
    onset = rng.uniform(4, 8) * MINUTE
    begun = [False]

    def act(tick: Tick) -> None:
        engine = node.engine
        if tick.t >= onset and not begun[0]:
            begun[0] = True
            engine.stalled_by, engine.unfit = why, unfit
            if fill == 0:
                engine.abort_all()
                node.times = 0.0
            elif fill > 0.9:
                engine.running[-1:] = [*engine.running[-1:], _block(engine.tenants[0], engine.capacity - engine.used)]

    # A queue that nobody serves also waits for memory; and what memory refuses in an empty pool can never run.
    implied = frozenset({"kv_pressure", "tenant_surge", *(("config_mismatch",) if unfit and why == "memory" else ())})
    return Made(node.run(act), (Label("kv_stall", clock.monotonic(onset), None, ENGINE, 60.0, implied),))


def _block(tenant: object, blocks: int) -> Request:
    request = Request(tenant, 16 * max(1, blocks - 1), 16)  # type: ignore[arg-type]
    request.reach(16.0 * max(1, blocks - 1))
    return request


def stall_full(rng: Random) -> Made:
    """The pool is full, nothing goes on (vllm#1607, #1206)."""
    return _standstill(rng, rng.choice(("memory", "deferred_frees")), 1.0, 0)


def stall_empty(rng: Random) -> Made:
    """Nothing runs, requests wait, and the pool is empty: evicting is no use (vllm#45414, vllm-metal#479)."""
    return _standstill(rng, rng.choice(("memory", "skipped", "unknown")), 0.0, rng.randint(1, 8))


def stall_midway(rng: Random) -> Made:
    """A step that never ends, at whatever level."""
    return _standstill(rng, rng.choice(("delayed_frees", "remote_kv", "unknown")), 0.5, 0)


def busy_and_full(rng: Random) -> Made:
    """Nine tenths and more of the pool in use for many minutes, and nothing waits: what throughput looks like."""
    clock = Clock(rng, 20 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, daily=False, capacity=20_000, prompt=rng.uniform(2_000, 4_000))
    node.engine.speed.decode = rng.uniform(6, 10)  # large models, long prompts: they stay for half a minute
    full, begin = rng.uniform(0.95, 0.985), rng.uniform(2, 4) * MINUTE
    node.rate = 0.0

    def act(tick: Tick) -> None:
        # Clients that send the next request when one is answered, as batch jobs do; they come within a minute or two.
        engine = node.engine
        most = (0.4 + (full - 0.4) * min(1.0, max(0.0, (tick.t - begin) / 100))) * engine.capacity
        for _ in range(8):
            request = rng.choice(node.tenants).draw(rng)
            # By what all will have taken in the end, so that nothing ever has to wait.
            if sum(each.whole for each in (*engine.running, *engine.waiting)) + request.whole > most:
                break
            request.tenant.requests += 1
            engine.waiting.append(request)

    return Made(node.run(act))


def ramp_up(rng: Random) -> Made:
    """Traffic comes in the morning, within minutes: more than 8 % of the pool a minute, and it levels off."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=rng.uniform(0.55, 0.75), daily=False)
    begin, ramp = rng.uniform(3, 6) * MINUTE, rng.uniform(30, 300)

    def act(tick: Tick) -> None:
        node.times = 0.05 + 0.95 * min(1.0, max(0.0, (tick.t - begin) / ramp))

    return Made(node.run(act))


def bursts(rng: Random) -> Made:
    """Now and then many requests at once; they are served within seconds."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3, daily=False, capacity=45_000)
    every, long = rng.uniform(120, 300), rng.uniform(4, 12)

    def act(tick: Tick) -> None:
        node.times = 2.5 if tick.t % every < long else 0.9

    return Made(node.run(act))


def long_document(rng: Random) -> Made:
    """One document of 100,000 tokens and its long answer (vllm#31353: 3.4 to 6.4 % in 4.5 min with one request)."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=rng.choice((0.02, 0.3)), capacity=20_000)
    come = rng.uniform(4, 8) * MINUTE
    request = Request(node.tenants[0], rng.randint(60_000, 110_000), rng.randint(20_000, 60_000))

    def act(tick: Tick) -> None:
        if tick.t >= come and request.done == 0 and request not in node.engine.running:
            request.reach(float(request.prompt))
            node.engine.running.append(request)

    return Made(node.run(act))


def growing_in_step(rng: Random) -> Made:
    """Few requests, long answers: use grows for many minutes by just what they generate (19 to 65 % in 40 s)."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.1, capacity=20_000)
    number, come = rng.randint(8, 40), rng.uniform(3, 6) * MINUTE
    each = min(12_000, int(20_000 * 16 * 0.75 / number))
    begun = [False]

    def act(tick: Tick) -> None:
        if tick.t >= come and not begun[0]:
            begun[0] = True
            for _ in range(number):
                request = Request(node.tenants[0], 400, int(each * rng.uniform(0.6, 1.0)))
                request.reach(400.0)
                node.engine.running.append(request)

    return Made(node.run(act))


def long_sessions(rng: Random) -> Made:
    """A tenant whose conversations go on for half an hour, as they always did."""
    clock = Clock(rng, 3 * 60 * MINUTE, 10.0)
    node = Serving(rng, clock, load=0.4, tenants=2)
    node.engine.session_seconds = rng.uniform(60, 100)
    return Made(node.run())


def retry_bursts(rng: Random) -> Made:
    """Clients give up and come again (a front end's time-out); the engine gives everything back."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.45, daily=False)
    every = rng.uniform(90, 240)
    next_at = [rng.uniform(3, 6) * MINUTE]

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0]:
            next_at[0] += every
            number = node.engine.abort_all()
            for _ in range(number // 2):
                node.engine.waiting.append(rng.choice(node.tenants).draw(rng))

    return Made(node.run(act))


def mass_abort(rng: Random) -> Made:
    """Every client leaves at once; the engine is idle and says so."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.6)
    when = rng.uniform(5, 9) * MINUTE
    done = [False]

    def act(tick: Tick) -> None:
        if tick.t >= when and not done[0]:
            done[0] = True
            node.engine.abort_all()
            node.times = 0.0

    return Made(node.run(act))


def some_preempted(rng: Random) -> Made:
    """A few per cent of requests are put back once and end well (inference-sim#963: 7.4 %, all complete)."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, daily=False)
    pace = rng.uniform(100, 250)

    def act(tick: Tick) -> None:
        engine = node.engine
        if engine.running and rng.random() < clock.period / pace:
            engine.put_back()

    return Made(node.run(act))


def paused_on_purpose(rng: Random) -> Made:
    """Somebody pauses the engine to swap weights; work waits for a minute or two, by intention."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    begin, long = rng.uniform(4, 8) * MINUTE, rng.uniform(40, 150)

    def act(tick: Tick) -> None:
        node.engine.paused = begin <= tick.t < begin + long
        if node.engine.paused:
            node.times = 0.02
        else:
            node.times = 1.0

    return Made(node.run(act))


RECIPES = (
    Recipe("overload", "pressure", "kv_pressure", overload, 4, 12),
    Recipe("thrash", "pressure", "preemption_thrash", thrash, 4, 12),
    Recipe("standstill, pool full", "pressure", "kv_stall", stall_full, 2, 4),
    Recipe("standstill, pool empty", "pressure", "kv_stall", stall_empty, 2, 4),
    Recipe("standstill midway", "pressure", "kv_stall", stall_midway, 0, 6, unseen=True),
    Recipe("busy and full", "pressure", "", busy_and_full, 2, 8),
    Recipe("ramp-up", "pressure", "", ramp_up, 2, 14),
    Recipe("bursts", "pressure", "", bursts, 2, 10),
    Recipe("long document", "pressure", "", long_document, 2, 14),
    Recipe("growing in step", "pressure", "", growing_in_step, 2, 10),
    Recipe("long sessions", "pressure", "", long_sessions, 1, 3, long=True),
    Recipe("retry bursts", "pressure", "", retry_bursts, 2, 10),
    Recipe("mass abort", "pressure", "", mass_abort, 2, 10),
    Recipe("some preempted", "pressure", "", some_preempted, 2, 10),
    Recipe("paused on purpose", "pressure", "", paused_on_purpose, 0, 8, unseen=True),
)
