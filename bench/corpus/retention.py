"""Engines with hooks: more ways to keep blocks that nobody needs, beside those of ``blocks.py``, and their twins."""

from __future__ import annotations

from random import Random

from bench.corpus.blocks import ENGINE, OF_LEAK, lose
from bench.corpus.clock import MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.scenario import Label, Made, Recipe
from engine_hooks.detail import DelayedRow, PinRow

_LONG = 9 * MINUTE


def leak_in_steps(rng: Random) -> Made:
    """Nothing for minutes, then a step, as after each burst that is aborted; the engine restarts once before."""
    clock = Clock(rng, 12 * MINUTE, period_of(rng), quiet=True)
    node = Serving(rng, clock, load=rng.uniform(0.2, 0.5))
    restarted, onset = rng.uniform(1, 2) * MINUTE, rng.uniform(4, 6) * MINUTE
    next_at, step, done = [onset], rng.randint(3, 60), [False]

    def act(tick: Tick) -> None:
        if tick.t >= restarted and not done[0]:
            done[0] = True
            node.restart(node.engine, tick)
        if tick.t >= next_at[0]:
            next_at[0] += rng.uniform(100, 200)
            node.engine.abort_all()
            lose(node.engine, rng, step, tick.t, "aborted_engine")

    return Made(node.run(act), (Label("kv_orphan", clock.monotonic(onset), None, ENGINE, 20.0, OF_LEAK),))


def freed_twice_more_and_more(rng: Random) -> Made:
    """Each request that shares a prefix gives a few blocks back once too often; some become whole again."""
    clock = Clock(rng, _LONG, period_of(rng))
    node = Serving(rng, clock)
    onset, pace = rng.uniform(3, 6) * MINUTE, rng.uniform(5, 40)
    next_at = [onset]

    def act(tick: Tick) -> None:
        while tick.t >= next_at[0]:
            next_at[0] += rng.expovariate(1 / pace)
            node.engine.over_freed = max(1, node.engine.over_freed + rng.choice((-1, 1, 2, 5)))

    return Made(node.run(act), (Label("kv_over_freed", clock.monotonic(onset), None, ENGINE, 20.0),))


def _row(peer: str, direction: str, kept: tuple[int, int], oldest: float, lease: float | None) -> DelayedRow:
    """Return a row of requests and blocks (``kept``)."""
    requests, blocks = kept
    late = lease is not None and oldest > lease
    return DelayedRow(
        peer=peer,
        direction=direction,
        requests=requests,
        blocks=blocks,
        oldest_seconds=oldest,
        lease_seconds=lease,
        expired=blocks if late else 0,
        tenants={"acme": blocks},
    )


def aborted_while_loading(rng: Random) -> Made:
    """Clients go away while their KV is loaded from elsewhere, and that it has come is never said."""
    lease = rng.choice((60.0, 120.0))
    clock = Clock(rng, lease + _LONG, period_of(rng))
    node = Serving(rng, clock, load=0.3, capacity=20_000)
    since, each = rng.uniform(2, 3) * MINUTE, rng.randint(20, 400)

    def act(tick: Tick) -> None:
        oldest = tick.t - since
        rows = (_row("10.0.3.9:5557", "loading", (1, each), oldest, lease),) if oldest >= 0 else ()
        node.engine.delayed = rows

    due = clock.monotonic(since + lease)
    return Made(node.run(act), (Label("kv_delayed_free", due, None, ENGINE, 60.0, OF_LEAK),))


def one_of_three_peers(rng: Random) -> Made:
    """Two peers read what is kept for them within seconds, the third has been gone for longer than its lease."""
    lease = rng.choice((60.0, 120.0, 240.0))
    clock = Clock(rng, lease + _LONG, period_of(rng))
    node = Serving(rng, clock, load=0.3, capacity=20_000)
    since, each = rng.uniform(1, 3) * MINUTE, rng.randint(8, 200)

    def act(tick: Tick) -> None:
        rows = [_row(f"10.0.0.{n}:5600", "send", (3, 40), rng.uniform(0.2, 6), lease) for n in (7, 8)]
        if tick.t >= since:
            rows.append(_row("10.0.0.9:5600", "send", (1, each), tick.t - since, lease))
        node.engine.delayed = tuple(rows)

    due = clock.monotonic(since + lease)
    return Made(node.run(act), (Label("kv_delayed_free", due, None, ENGINE, 60.0, OF_LEAK),))


def peers_that_take_their_time(rng: Random) -> Made:
    """Three peers, each slow now and then, and none slower than its lease allows."""
    clock = Clock(rng, 10 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, capacity=20_000)
    lease, every = rng.choice((60.0, 120.0, 240.0)), rng.uniform(50, 200)

    def act(tick: Tick) -> None:
        slow = min(0.9 * lease, tick.t % every)
        directions = ("send", "loading", "deferred")
        node.engine.delayed = tuple(
            _row(f"10.0.0.{n}:5600", way, (2, 60), slow if n == 1 else rng.uniform(0.1, 3), lease)
            for n, way in enumerate(directions)
        )

    return Made(node.run(act))


def one_holder_of_two(rng: Random) -> Made:
    """An offload's books explain what it holds; beside it another holder never lets go, a few references at a time."""
    limit, since, pace = rng.choice((300.0, 600.0)), rng.uniform(1.5, 3) * MINUTE, rng.uniform(5, 30)
    clock = Clock(rng, since + limit - 5, period_of(rng))  # at its limit it is called by another name
    node = Serving(rng, clock, load=0.3, capacity=20_000)

    def act(tick: Tick) -> None:
        known = PinRow(holder="offload", pool="gpu", known=True, references=rng.randint(50, 90), oldest_seconds=tick.t,
                       orphaned_after_seconds=None)  # fmt: skip
        rows, age = [known], tick.t - since
        if age >= 0:
            rows.append(PinRow(holder="OwnConnector", pool="gpu", known=False, references=1 + int(age / pace),
                               oldest_seconds=age, orphaned_after_seconds=limit))  # fmt: skip
        node.engine.pins = tuple(rows)

    return Made(node.run(act), (Label("kv_pinned", clock.monotonic(since), None, ENGINE, limit, OF_LEAK),))


def residue_of_preemptions(rng: Random) -> Made:
    """Requests that are put back while drafts are open leave the drafts' blocks behind: rarely, many at a time."""
    clock = Clock(rng, 12 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.35, speculative=True, capacity=20_000)
    onset, pace = rng.uniform(3, 5) * MINUTE, rng.uniform(20, 60)
    each = max(1, int(rng.uniform(60e6, 250e6) / node.engine.block_bytes))
    next_at = [onset]

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0] and node.engine.running and node.engine.kept < 0.3 * node.engine.capacity:
            next_at[0] += rng.expovariate(1 / pace)
            node.engine.put_back()
            node.engine.residue += each
            lose(node.engine, rng, each, tick.t, "preempted")

    implied = frozenset({"kv_orphan", *OF_LEAK})
    return Made(
        node.run(act),
        (
            Label("kv_orphan", clock.monotonic(onset), None, ENGINE, 30.0, frozenset({"spec_residue", *OF_LEAK})),
            Label("spec_residue", clock.monotonic(onset), None, ENGINE, 90.0, implied),
        ),
    )


def preempted_with_drafts(rng: Random) -> Made:
    """The same, and everything comes back: a few are put back each minute, their drafts are dropped."""
    clock = Clock(rng, 10 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.45, speculative=True)
    pace = rng.uniform(80, 160)

    def act(_: Tick) -> None:
        if node.engine.running and rng.random() < clock.period / pace:
            node.engine.put_back()

    return Made(node.run(act))


def aborts_by_the_hundred(rng: Random) -> Made:
    """A client library that gives up after a second or two: most requests are cut, and nothing is left of them."""
    clock = Clock(rng, 10 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, speculative=rng.random() < 0.5)
    share = rng.uniform(0.05, 0.3)

    def act(_: Tick) -> None:
        for number in reversed(range(len(node.engine.running))):
            if rng.random() < share * 0.1 * clock.period:
                node.engine.drop(number)

    return Made(node.run(act))


RECIPES = (
    Recipe("leak in steps", "blocks", "kv_orphan", leak_in_steps, 2, 5),
    Recipe("freed twice more and more", "blocks", "kv_over_freed", freed_twice_more_and_more, 2, 9),
    Recipe("aborted while loading", "blocks", "kv_delayed_free", aborted_while_loading, 1, 5),
    Recipe("one of three peers", "blocks", "kv_delayed_free", one_of_three_peers, 1, 5),
    Recipe("one holder of two", "blocks", "kv_pinned", one_holder_of_two, 0, 9, unseen=True),
    Recipe("residue of preemptions", "blocks", "spec_residue", residue_of_preemptions, 2, 9),
    Recipe("peers that take their time", "blocks", "", peers_that_take_their_time, 2, 14),
    Recipe("preempted with drafts", "blocks", "", preempted_with_drafts, 1, 9),
    Recipe("aborts by the hundred", "blocks", "", aborts_by_the_hundred, 1, 14),
)
