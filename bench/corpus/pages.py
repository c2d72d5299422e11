"""Engines without hooks: only their own pages are read, as the source that reads them live would tell it."""

from __future__ import annotations

from random import Random

from agent.subject import Subject
from bench.corpus.blocks import lose
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.hookless import Hookless
from bench.corpus.scenario import Label, Made, Recipe

ENGINE = Subject(scope="engine", engine="s")
_OF_LOAD = frozenset({"preemption_thrash", "kv_pressure", "tenant_surge", "workload_shift", "kv_stall"})


def overload(rng: Random) -> Made:
    """The queue grows behind a full pool."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.6, daily=False, capacity=8_000)
    node.engine.speed.prefill *= 4  # so that it is memory that they wait for
    onset, times = rng.uniform(6, 10) * MINUTE, rng.uniform(3, 5)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.crowd()
        node.times = times if tick.t >= onset else 1.0

    label = Label("kv_pressure", clock.monotonic(onset), None, ENGINE, 5 * MINUTE, _OF_LOAD)
    return Made(node.run(act), (label,))


def standstill(rng: Random) -> Made:
    """Nothing runs, requests wait, for the better part of an hour (vllm-metal#479: use 0.0; vllm-ascend#8326: full)."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.4, balanced=False)
    onset, keep = rng.uniform(5, 8) * MINUTE, rng.random() < 0.5
    begun = [False]

    def act(tick: Tick) -> None:
        if tick.t >= onset and not begun[0]:
            begun[0] = True
            node.engine.stalled_by, node.engine.unfit = "memory", rng.randint(1, 6)
            if not keep:
                node.engine.abort_all()

    # Those who come while nothing goes on still queue, so that the page itself is alive.
    implied = frozenset({"kv_pressure", "kv_orphan", "sensor_stale"})
    return Made(node.run(act), (Label("kv_stall", clock.monotonic(onset), None, ENGINE, 120.0, implied),))


def frozen(rng: Random) -> Made:
    """After a mass abort the same values for ever (vllm#22545: 106 running, 90.4 %, no token)."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.6)
    onset = rng.uniform(5, 8) * MINUTE
    kept: dict[str, float | None] = {}

    def bend(values: dict[str, float | None]) -> None:
        if kept:
            values.update(kept)

    node.page.bend = bend

    def act(tick: Tick) -> None:
        if tick.t >= onset and not kept:
            kept.update(node.page.values())
            kept["running"] = max(1.0, kept["running"] or 0.0)

    return Made(
        node.run(act), (Label("sensor_stale", clock.monotonic(onset), None, ENGINE, 120.0, frozenset({"kv_stall"})),)
    )


def impossible(rng: Random) -> Made:
    """Use below zero or above one, again and again (vllm-ascend#10048: -0.3875)."""
    clock = Clock(rng, 11 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.5)
    onset, value = rng.uniform(4, 7) * MINUTE, rng.choice((-0.3875395987328405, -0.02, 1.7, 87.59, -12.0))
    now = [0.0]

    def bend(values: dict[str, float | None]) -> None:
        if now[0] >= onset:
            values["usage"] = value

    node.page.bend = bend

    def act(tick: Tick) -> None:
        now[0] = tick.t

    return Made(node.run(act), (Label("bad_metric", clock.monotonic(onset), None, ENGINE, 120.0),))


def impossible_once(rng: Random) -> Made:
    """One sample that can't be (TensorRT-LLM#11922: briefly negative): nothing to get up for."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.5, period=1.0)
    when = [rng.uniform(0.2, 0.8) * clock.seconds]

    def bend(values: dict[str, float | None]) -> None:
        if when[0] and now[0] >= when[0]:
            when[0] = 0.0
            values["usage"] = -0.003

    now = [0.0]
    node.page.bend = bend

    def act(tick: Tick) -> None:
        now[0] = tick.t

    return Made(node.run(act))


def idle_floor(rng: Random) -> Made:
    """Use stays although nothing runs, higher each time (vllm#27073: near 100 % for 6 h until a restart)."""
    clock = Clock(rng, 5 * HOUR, 15.0)
    node = Hookless(rng, clock, load=0.3, capacity=20_000, daily=False, period=10.0)
    onset, each = rng.uniform(0.5, 1.2) * HOUR, rng.uniform(0.002, 0.02)
    next_at = [onset]

    def act(tick: Tick) -> None:
        node.times = 0.0 if tick.t % (20 * MINUTE) > 15 * MINUTE else 1.0
        if tick.t >= next_at[0]:
            next_at[0] += rng.expovariate(1 / 150.0)
            if node.engine.kept < 0.7 * node.engine.capacity:
                lose(node.engine, rng, int(each * node.engine.capacity), tick.t)

    label = Label("kv_orphan", clock.monotonic(onset), None, ENGINE, 2.5 * HOUR, _OF_LOAD)
    return Made(node.run(act), (label,))


def _no_page(rng: Random, *, bad: bool) -> Made:
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Hookless(rng, clock)
    onset = rng.uniform(4, 7) * MINUTE

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.page.down = "" if bad else "connection refused"
            node.page.bad_page = "the page is empty" if bad else ""

    kind = "sensor_stale" if bad else "engine_missing"
    implied = frozenset({"sensor_stale", "engine_missing", "bad_metric"})
    # A server that is away for three minutes may load its weights.
    due = 3 * MINUTE if bad else 5 * MINUTE
    return Made(node.run(act), (Label(kind, clock.monotonic(onset), None, ENGINE, due, implied),))


def unreachable(rng: Random) -> Made:
    """No page comes any more: the server is gone."""
    return _no_page(rng, bad=False)


def not_a_page(rng: Random) -> Made:
    """What answers is no page of an engine any more: empty, or of a proxy in between."""
    return _no_page(rng, bad=True)


def page_lost_for_a_moment(rng: Random) -> Made:
    """A scrape or two fail while the server is busy."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Hookless(rng, clock)
    every, long = rng.uniform(200, 500), rng.uniform(2, 12)

    def act(tick: Tick) -> None:
        node.page.down = "no answer within 5.0 s" if tick.t % every < long else ""

    return Made(node.run(act))


def renamed(rng: Random) -> Made:
    """An upgrade takes metrics away or calls them otherwise: what is not there says nothing."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Hookless(rng, clock)
    gone = rng.sample(("usage", "preemptions", "generation_tokens", "waiting", "prefix_queries"), rng.randint(1, 3))
    when, now = rng.uniform(5, 10) * MINUTE, [0.0]

    def bend(values: dict[str, float | None]) -> None:
        if now[0] >= when:
            values.update(dict.fromkeys(gone))

    node.page.bend = bend

    def act(tick: Tick) -> None:
        now[0] = tick.t

    return Made(node.run(act))


def restarted(rng: Random) -> Made:
    """One restart: counters begin again, the pool is empty, the page is away for up to three minutes."""
    clock = Clock(rng, 20 * MINUTE, period_of(rng), quiet=True)
    node = Hookless(rng, clock)
    when, long = rng.uniform(5, 10) * MINUTE, rng.uniform(30, 160)
    done = [False]

    def act(tick: Tick) -> None:
        away = when <= tick.t < when + long
        node.page.down = "connection refused" if away else ""
        if away and not done[0]:
            done[0] = True
            node.restart(node.engine, tick)

    return Made(node.run(act))


def by_day_and_night(rng: Random) -> Made:
    """A day and a half of ordinary traffic, seen each 15 to 30 seconds."""
    clock = Clock(rng, 36 * HOUR, 60.0)
    return Made(Hookless(rng, clock, load=rng.uniform(0.3, 0.75), period=1.0).run())


def long_generation(rng: Random) -> Made:
    """One answer that grows for minutes, 3.4 to 6.4 % in four and a half (vllm#31353)."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Hookless(rng, clock, load=0.02, capacity=20_000, period=10.0)
    come = rng.uniform(2, 4) * MINUTE
    begun = [False]

    def act(tick: Tick) -> None:
        if tick.t >= come and not begun[0]:
            begun[0] = True
            request = node.tenants[0].draw(rng)
            request.output = rng.randint(30_000, 80_000)
            request.reach(float(request.prompt))
            node.engine.running.append(request)

    return Made(node.run(act))


RECIPES = (
    Recipe("page: overload", "pages", "kv_pressure", overload, 2, 4),
    Recipe("page: standstill", "pages", "kv_stall", standstill, 2, 6),
    Recipe("page: frozen", "pages", "sensor_stale", frozen, 3, 7),
    Recipe("page: impossible", "pages", "bad_metric", impossible, 3, 8),
    Recipe("page: idle floor", "pages", "kv_orphan", idle_floor, 2, 4, long=True),
    Recipe("page: unreachable", "pages", "engine_missing", unreachable, 2, 7),
    Recipe("page: not a page", "pages", "sensor_stale", not_a_page, 2, 5),
    Recipe("page: impossible once", "pages", "", impossible_once, 2, 10),
    Recipe("page: lost for a moment", "pages", "", page_lost_for_a_moment, 2, 12),
    Recipe("page: renamed", "pages", "", renamed, 2, 14),
    Recipe("page: restarted", "pages", "", restarted, 2, 12),
    Recipe("page: by day and night", "pages", "", by_day_and_night, 1, 3, long=True),
    Recipe("page: long generation", "pages", "", long_generation, 2, 8),
)
