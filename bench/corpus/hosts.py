"""Host memory: processes and cgroups that grow until the kernel ends them, and those that only look so."""

from __future__ import annotations

import math
from random import Random

from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick
from bench.corpus.healthy import Serving
from bench.corpus.load import saw
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.torch import GIB, MIB

ANY = Subject(scope="process", engine="m")
OF_GROWTH = frozenset({"oom", "restart_loop", "engine_missing"})


def _noise(rng: Random, node: Serving) -> float:
    """Return how large the teeth of the front end's heap are, which garbage collection makes."""
    return rng.uniform(0.02, 0.15) * node.front.base


def per_request(rng: Random) -> Made:
    """1.4 to 2.3 KB and more of each request stay (49 to 400 MiB an hour), for a day, under teeth."""
    clock = Clock(rng, 20 * HOUR, 60.0)
    node = Serving(rng, clock, load=0.5, limit=rng.choice((None, 64 * GIB)))
    onset, per_hour = rng.uniform(3, 5) * HOUR, rng.uniform(60, 400) * MIB
    process, height, period = rng.choice((node.core, node.front)), _noise(rng, node), rng.uniform(120, 300)
    leaked = [0.0]

    def act(tick: Tick) -> None:
        busy = node.hour(tick.t)
        if tick.t >= onset:
            leaked[0] += tick.elapsed / HOUR * per_hour * busy
        process.more = int(leaked[0] + saw(tick.t, period, height))

    # It must be seen above the load's daily swing, so a good part of a day is what it takes.
    label = Label("host_growth", clock.monotonic(onset), None, ANY, 12 * HOUR, OF_GROWTH)
    return Made(node.run(act), (label,))


def fast(rng: Random) -> Made:
    """From 3 GB to a limit within half an hour to two hours (images that stay: 3,209 MB to 200 GB)."""
    clock = Clock(rng, 3 * HOUR, 15.0)
    node = Serving(rng, clock, load=0.4, limit=None)
    base = sum(process.base + process.file for process in node.processes)
    long = rng.uniform(0.5, 2.0) * HOUR
    node.cgroup.limit = int(base + rng.uniform(8, 60) * GIB)
    onset, room = rng.uniform(20, 40) * MINUTE, node.cgroup.limit - base
    process = rng.choice((node.core, node.front))

    def act(tick: Tick) -> None:
        share = (tick.t - onset) / long
        process.more = int(room * min(0.97, max(0.0, share)))

    # Half an hour before the end is when somebody has to get up.
    due = max(12 * MINUTE, long - 25 * MINUTE)
    label = Label("host_growth", clock.monotonic(onset), None, ANY, due, OF_GROWTH)
    return Made(node.run(act), (label,))


def staircase(rng: Random) -> Made:
    """A step with each overload that is aborted (sglang#18701): it never comes down."""
    clock = Clock(rng, 10 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4, limit=None)
    process, onset = node.core, rng.uniform(1.5, 2.5) * HOUR
    step, pace, next_at = int(rng.uniform(0.03, 0.08) * process.base), rng.uniform(400, 900), [onset]

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0]:
            next_at[0] += pace * rng.uniform(0.7, 1.3)
            process.more += step

    label = Label("host_growth", clock.monotonic(onset), None, ANY, 3 * HOUR, OF_GROWTH)
    return Made(node.run(act), (label,))


def plateau(rng: Random) -> Made:
    """+6.9 GiB in an hour and a half and then nothing more (llama.cpp#28933): tables that are read in, caches."""
    clock = Clock(rng, 10 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4, limit=None)
    after, size = rng.uniform(0.15, 0.5) * HOUR, rng.uniform(0.6, 6.9) * GIB

    def act(tick: Tick) -> None:
        node.core.more = int(size * (1 - math.exp(-tick.t / after)))

    return Made(node.run(act))


def page_cache(rng: Random) -> Made:
    """Files fill the cgroup up to its limit; the kernel takes their pages when it needs some."""
    clock = Clock(rng, 8 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4, limit=80 * GIB)

    def act(tick: Tick) -> None:
        node.cgroup.cache += int(tick.elapsed * 4 * MIB)

    return Made(node.run(act))


def heap_teeth(rng: Random) -> Made:
    """A heap that doubles and is collected, each two to five minutes, for most of a day."""
    clock = Clock(rng, 16 * HOUR, 60.0)
    node = Serving(rng, clock, load=0.4)
    height, period = rng.uniform(0.3, 1.2) * node.front.base, rng.uniform(120, 300)

    def act(tick: Tick) -> None:
        node.front.more = int(saw(tick.t, period, height))

    return Made(node.run(act))


def follows_load(rng: Random) -> Made:
    """Memory that rises and falls with the day's load, by a quarter."""
    clock = Clock(rng, 36 * HOUR, 60.0)
    node = Serving(rng, clock, load=0.5)
    height, lag = rng.uniform(0.1, 0.3) * node.core.base, [0.0]

    def act(tick: Tick) -> None:
        lag[0] += (node.hour(tick.t) - lag[0]) * min(1.0, tick.elapsed / 1200)
        node.core.more = int(height * lag[0])

    return Made(node.run(act))


def one_step(rng: Random) -> Made:
    """Pinned memory for offloading, all at once (vllm#53042: 384 GiB where 200 were asked for), or an adapter's."""
    clock = Clock(rng, 10 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.5, limit=None)
    when, size = rng.uniform(0.5, 6) * HOUR, rng.uniform(1, 40) * GIB

    def act(tick: Tick) -> None:
        node.core.more = int(size) if tick.t >= when else 0

    return Made(node.run(act))


def high_water(rng: Random) -> Made:
    """A new high-water mark now and then, ever less often (vllm#43639: +107 MiB in a window)."""
    clock = Clock(rng, 15 * HOUR, 60.0)
    node = Serving(rng, clock, load=0.5, limit=None)
    size = rng.uniform(0.005, 0.012) * node.core.base

    def act(tick: Tick) -> None:
        # What the largest of n requests needs grows with the logarithm of n.
        node.core.more = int(size * math.log1p(tick.t / 60))

    return Made(node.run(act))


RECIPES = (
    Recipe("host: per request", "hosts", "host_growth", per_request, 2, 6, long=True),
    Recipe("host: fast", "hosts", "host_growth", fast, 3, 6, long=True),
    Recipe("host: staircase", "hosts", "host_growth", staircase, 2, 4, long=True),
    Recipe("host: plateau", "hosts", "", plateau, 2, 4, long=True),
    Recipe("host: page cache", "hosts", "", page_cache, 1, 3, long=True),
    Recipe("host: heap teeth", "hosts", "", heap_teeth, 1, 3, long=True),
    Recipe("host: follows the load", "hosts", "", follows_load, 1, 3, long=True),
    Recipe("host: one step", "hosts", "", one_step, 1, 4, long=True),
    Recipe("host: high-water marks", "hosts", "", high_water, 0, 3, unseen=True, long=True),
)
