"""What is said of an engine that can't be, that is missing, or that is not what it was; and what only looks so."""

from __future__ import annotations

from random import Random

from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.engine import Engine
from bench.corpus.events import ENGINE, failure
from bench.corpus.healthy import Serving
from bench.corpus.hookless import Hookless
from bench.corpus.pages import ENGINE as SCRAPED
from bench.corpus.requests import Tenant
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.tenants import OF_LOAD, multiplied
from engine_hooks.allocator import MEMORY


def below_zero(rng: Random) -> Made:
    """Requests that run or wait are counted below zero: one was taken off twice, and from then on it stays so."""
    clock = Clock(rng, 10 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.4)
    onset, name, number = rng.uniform(3, 6) * MINUTE, rng.choice(("running", "waiting")), rng.randint(1, 12)
    now = [0.0]

    def bend(values: dict[str, float | None]) -> None:
        if now[0] >= onset:
            values[name] = -float(number)

    def act(tick: Tick) -> None:
        now[0] = tick.t

    node.page.bend = bend
    return Made(node.run(act), (Label("bad_metric", clock.monotonic(onset), None, SCRAPED, 120.0),))


def more_than_there_is(rng: Random) -> Made:
    """The driver says that more of a GPU is used than it has, as one does that is older than who asks it."""
    clock = Clock(rng, 10 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    onset, share = rng.uniform(3, 6) * MINUTE, rng.uniform(0.2, 0.9)

    def act(tick: Tick) -> None:
        node.cards[0].said_more = int(share * node.cards[0].total) if tick.t >= onset else 0

    subject = Subject(scope="gpu", gpu="0")
    implied = frozenset({"device_growth", "over_budget"})
    return Made(node.run(act), (Label("bad_metric", clock.monotonic(onset), None, subject, 120.0, implied),))


def limit_beyond_the_pool(rng: Random) -> Made:
    """It comes up with a smaller pool than before, in which the longest request that it allows has no room."""
    clock = Clock(rng, 10 * MINUTE, period_of(rng), quiet=True)
    node = Serving(rng, clock, load=0.2, capacity=20_000, prompt=rng.uniform(300, 900))
    longest = int(20_000 * 16 * rng.uniform(0.5, 0.95))
    onset, share, done = rng.uniform(2, 5) * MINUTE, rng.uniform(0.15, 0.45), [False]
    node.engine.longest_tokens = longest

    def act(tick: Tick) -> None:
        if tick.t >= onset and not done[0]:
            done[0] = True
            node.restart(node.engine, tick)
            node.engine.capacity = int(share * longest / 16)

    return Made(node.run(act), (Label("config_mismatch", clock.monotonic(onset), None, ENGINE, 90.0),))


def limit_that_fits(rng: Random) -> Made:
    """One request may have nearly the whole pool. None does."""
    clock = Clock(rng, 12 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, capacity=20_000)
    node.engine.longest_tokens = int(20_000 * 16 * rng.uniform(0.6, 1.0))
    return Made(node.run())


def no_blocks_at_all(rng: Random) -> Made:
    """Weights and graphs leave nothing for a pool; its launcher tries again each minute or two."""
    clock = Clock(rng, 12 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.0)
    onset = rng.uniform(2, 4) * MINUTE
    text = (
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine."
    )
    next_at = [onset]
    node.gone.add("m")

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0]:
            next_at[0] += rng.uniform(50, 130)
            node.failures[:] = [failure(tick, text, MEMORY), *node.failures][:5]

    implied = frozenset({"oom", "restart_loop", "engine_missing"})
    return Made(node.run(act), (Label("config_mismatch", clock.monotonic(onset), None, ENGINE, 60.0, implied),))


def more_long_ones(rng: Random) -> Made:
    """Of each twenty prompts one is a document; after hours every second one is."""
    clock = Clock(rng, 6 * HOUR, 30.0)
    node = Serving(rng, clock, load=0.1, daily=False, tenants=2, prompt=rng.uniform(300, 700), capacity=45_000)
    chats, documents = node.tenants
    documents.prompt, documents.spread, documents.longest = rng.uniform(9_000, 14_000), 0.3, 30_000
    fewer, more = [1.0], [0.05]
    multiplied(chats, fewer)
    multiplied(documents, more)
    onset, then = rng.uniform(3.5, 4.5) * HOUR, rng.uniform(0.8, 1.5)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            fewer[0], more[0] = 0.6, then

    label = Label("workload_shift", clock.monotonic(onset), None, ENGINE, 45 * MINUTE, OF_LOAD)
    return Made(node.run(act), (label,))


def longer_by_and_by(rng: Random) -> Made:
    """Contexts become six to nine times as long within half an hour, as one application after the other is changed."""
    clock = Clock(rng, 6.5 * HOUR, 30.0)
    node = Serving(rng, clock, load=0.12, daily=False, tenants=3, prompt=rng.uniform(300, 700), capacity=20_000)
    onset, long, most = rng.uniform(3.5, 4.5) * HOUR, rng.uniform(10, 30) * MINUTE, rng.uniform(6, 9)
    prompts = [tenant.prompt for tenant in node.tenants]

    def act(tick: Tick) -> None:
        times = 1 + (most - 1) * min(1.0, max(0.0, (tick.t - onset) / long))
        for tenant, prompt in zip(node.tenants, prompts, strict=True):
            tenant.prompt = prompt * times

    due = long + 45 * MINUTE
    return Made(node.run(act), (Label("workload_shift", clock.monotonic(onset), None, ENGINE, due, OF_LOAD),))


def one_of_two_gone(rng: Random) -> Made:
    """Of two engines on a node one dies in the middle of its work; the other goes on."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    onset, other = rng.uniform(3, 5) * MINUTE, _second(rng, node)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.phases[other.name] = ("lost", "the link is gone")
        if tick.t >= onset + 15:
            node.gone.add(other.name)

    implied = frozenset({"sensor_stale", "kv_stall"})
    subject = Subject(scope="engine", engine=other.name)
    label = Label("engine_missing", clock.monotonic(onset), None, subject, 6 * MINUTE, implied)
    return Made(node.run(act), (label,))


def stopped_in_order(rng: Random) -> Made:
    """One of two engines gets no more requests, ends what it has, and is stopped: somebody scales down."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    onset, other, load = rng.uniform(3, 5) * MINUTE, _second(rng, node), [1.0]
    for tenant in other.tenants:
        multiplied(tenant, load)

    def act(tick: Tick) -> None:
        load[0] = 0.0 if tick.t >= onset else 1.0
        if tick.t >= onset + 30 and not other.running and not other.waiting:
            node.gone.add(other.name)

    return Made(node.run(act))


def _second(rng: Random, node: Serving) -> Engine:
    """Give the node a small engine more, ``n``."""
    rate = rng.uniform(1.0, 3.0)
    tenant = Tenant("zeta", lambda _: rate, prompt=rng.uniform(300, 900), output=rng.uniform(100, 300))
    engine = Engine(rng, [tenant], name="n", capacity=8_000, block_bytes=64 << 10)
    node.engines.append(engine)
    return engine


def idle_page(rng: Random) -> Made:
    """Nobody asks for anything for the most part: for many minutes nothing on the page changes."""
    clock = Clock(rng, 25 * MINUTE, 5.0)
    node = Hookless(rng, clock, load=0.2, daily=False, capacity=20_000, prompt=rng.uniform(300, 900))
    begin, long = rng.uniform(2, 5) * MINUTE, rng.uniform(10, 18) * MINUTE

    def act(tick: Tick) -> None:
        node.times = 0.0 if begin <= tick.t < begin + long else 1.0

    return Made(node.run(act))


RECIPES = (
    Recipe("page: below zero", "pages", "bad_metric", below_zero, 2, 6),
    Recipe("more than there is", "cards", "bad_metric", more_than_there_is, 1, 6),
    Recipe("limit beyond the pool", "events", "config_mismatch", limit_beyond_the_pool, 2, 8),
    Recipe("no blocks at all", "events", "config_mismatch", no_blocks_at_all, 1, 5),
    Recipe("more long ones", "tenants", "workload_shift", more_long_ones, 2, 7, long=True),
    Recipe("longer by and by", "tenants", "workload_shift", longer_by_and_by, 1, 6, long=True),
    Recipe("one of two gone", "events", "engine_missing", one_of_two_gone, 1, 6),
    Recipe("stopped in order", "events", "", stopped_in_order, 2, 14),
    Recipe("limit that fits", "events", "", limit_that_fits, 1, 12),
    Recipe("page: idle", "pages", "", idle_page, 2, 10),
)
