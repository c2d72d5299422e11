"""Engines with hooks: blocks that are lost, freed twice, kept too long or pinned, and what only looks like it."""

from __future__ import annotations

from random import Random

from agent.subject import Subject
from bench.corpus.clock import MINUTE, Clock, Tick, period_of
from bench.corpus.engine import Engine
from bench.corpus.healthy import Serving
from bench.corpus.scenario import Label, Made, Recipe
from engine_hooks.detail import DelayedRow, LeakRow, PinRow

ENGINE = Subject(scope="engine", engine="m")
_SHORT = 9 * MINUTE
_ENDINGS = ("aborted_front_end", "aborted_engine", "connector_failure", "error")
# A leak takes the pool away from those who need it, in the end.
OF_LEAK = frozenset({"kv_pressure", "preemption_thrash", "kv_stall"})


def lose(engine: Engine, rng: Random, blocks: int, t: float, ending: str = "") -> None:
    """Let ``blocks`` be held by nobody from now on."""
    row = LeakRow(
        kind="orphaned",
        pool="gpu",
        tenant=rng.choice(engine.tenants).name,
        session=f"{rng.getrandbits(16):04x}",
        request=f"{rng.getrandbits(48):012x}",
        ending=ending or rng.choice(_ENDINGS),
        blocks=blocks,
        references=blocks,
        age_seconds=0.0,
    )
    engine.orphans.append((row, t))


def _leak(rng: Random, least: int, most: int, every: float) -> Made:
    clock = Clock(rng, _SHORT, period_of(rng))
    node = Serving(rng, clock, load=rng.uniform(0.2, 0.6))
    onset = rng.uniform(3, 6) * MINUTE
    due = [onset]

    def act(tick: Tick) -> None:
        while tick.t >= due[0]:
            if node.engine.kept < 0.5 * node.engine.capacity:
                lose(node.engine, rng, rng.randint(least, most), due[0])
            due[0] += rng.expovariate(1 / every)

    return Made(node.run(act), (Label("kv_orphan", clock.monotonic(onset), None, ENGINE, 20.0, OF_LEAK),))


def leak_of_one_block(rng: Random) -> Made:
    """A single block, once."""
    return _leak(rng, 1, 1, 1e9)


def leak_by_aborts(rng: Random) -> Made:
    """A request's blocks with each abort (vllm#46283: a step per abort)."""
    return _leak(rng, 5, 120, 40.0)


def leak_slowly(rng: Random) -> Made:
    """A block or two every minute or so."""
    return _leak(rng, 1, 2, 60.0)


def leak_at_once(rng: Random) -> Made:
    """A sixth of the pool (sglang#105: 7,064 of 42,308)."""
    return _leak(rng, 1200, 1500, 1e9)


def over_freed(rng: Random) -> Made:
    """Blocks that were given back twice: one, or thousands (reports: 4,224 in excess)."""
    clock = Clock(rng, _SHORT, period_of(rng))
    node = Serving(rng, clock)
    onset, number = rng.uniform(3, 6) * MINUTE, rng.choice((1, 1, 3, 16, 59, 4224))

    def act(tick: Tick) -> None:
        node.engine.over_freed = number if tick.t >= onset else 0

    return Made(node.run(act), (Label("kv_over_freed", clock.monotonic(onset), None, ENGINE, 20.0),))


def _delayed(tick: Tick, since: float, lease: float | None, rate: float, upto: float) -> tuple[DelayedRow, ...]:
    """What a peer that stopped answering at ``since`` leaves: a few requests come each second until ``upto``."""
    oldest = tick.t - since
    if oldest < 0:
        return ()
    requests = max(1, int(rate * min(oldest, upto)))
    expired = 0 if lease is None else int(rate * max(0.0, min(oldest - lease, upto))) + (oldest > lease)
    row = DelayedRow(
        peer="10.0.0.7:5600",
        direction="send",
        requests=requests,
        blocks=requests * 12,
        oldest_seconds=oldest,
        lease_seconds=lease,
        expired=min(requests, expired) * 12,
        tenants={"acme": requests * 12},
    )
    return (row,)


def delayed_past_lease(rng: Random) -> Made:
    """A peer that is gone, and a connector that does not let go when its lease ends."""
    lease = rng.choice((60.0, 120.0, 240.0, 480.0))
    clock = Clock(rng, lease + _SHORT, period_of(rng))
    node = Serving(rng, clock, load=0.3, capacity=45_000)
    since, rate = rng.uniform(2, 4) * MINUTE, rng.uniform(0.2, 1.0)

    def act(tick: Tick) -> None:
        node.engine.delayed = _delayed(tick, since, lease, rate, 300.0)

    return Made(node.run(act), (Label("kv_delayed_free", clock.monotonic(since + lease), None, ENGINE, 60.0, OF_LEAK),))


def delayed_without_end(rng: Random) -> Made:
    """No lease at all (vllm#46283: released never)."""
    clock = Clock(rng, 22 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3, capacity=45_000)
    since, rate = rng.uniform(2, 4) * MINUTE, rng.uniform(0.1, 0.6)

    def act(tick: Tick) -> None:
        node.engine.delayed = _delayed(tick, since, None, rate, 400.0)

    return Made(node.run(act), (Label("kv_delayed_free", clock.monotonic(since), None, ENGINE, 15 * MINUTE, OF_LEAK),))


def delayed_inside_lease(rng: Random) -> Made:
    """Bounded retention: a steady stream that levels off at its rate times 480 s."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.35, capacity=45_000)
    lease, rate = rng.choice((120.0, 300.0, 480.0)), rng.uniform(0.5, 2.5)

    def act(tick: Tick) -> None:
        oldest = min(tick.t, lease * rng.uniform(0.96, 1.0))
        requests = int(rate * oldest)
        node.engine.delayed = (
            ()
            if not requests
            else (
                DelayedRow(
                    peer="10.0.0.7:5600",
                    direction="send",
                    requests=requests,
                    blocks=requests * 8,
                    oldest_seconds=oldest,
                    lease_seconds=lease,
                    expired=0,
                    tenants={"acme": requests * 8},
                ),
            )
        )

    return Made(node.run(act))


def _pins(references: int, oldest: float, limit: float | None, *, known: bool) -> tuple[PinRow, ...]:
    return (
        PinRow(
            holder="OddConnector",
            pool="gpu",
            known=known,
            references=references,
            oldest_seconds=oldest,
            orphaned_after_seconds=limit,
        ),
    )


def pinned_for_long(rng: Random) -> Made:
    """A connector whose books nobody can read, and that does not let go."""
    limit = rng.choice((300.0, 600.0))
    clock = Clock(rng, limit + 7 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    since, references = rng.uniform(2, 4) * MINUTE, rng.randint(5, 900)

    def act(tick: Tick) -> None:
        age = tick.t - since
        node.engine.pins = _pins(references, age, limit, known=False) if 0 <= age < limit else ()
        if age >= limit and not node.engine.orphans:
            lose(node.engine, rng, references, tick.t, "unknown")

    implied = frozenset({"kv_orphan", *OF_LEAK})
    ended = clock.monotonic(since + limit)
    return Made(
        node.run(act),
        (
            Label("kv_pinned", clock.monotonic(since), ended, ENGINE, limit, implied),
            Label("kv_orphan", ended, None, ENGINE, 20.0, frozenset({"kv_pinned", *OF_LEAK})),
        ),
    )


def pinned_in_passing(rng: Random) -> Made:
    """Transfers that take a while and end; and pins that the connector's own books explain, however old."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.35)
    each, known = rng.uniform(20, 90), rng.random() < 0.5

    def act(tick: Tick) -> None:
        age = tick.t if known else tick.t % each
        node.engine.pins = _pins(rng.randint(50, 400), age, None if known else 600.0, known=known)

    return Made(node.run(act))


def residue(rng: Random) -> Made:
    """Each abort in a draft leaves blocks behind."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.35, speculative=True, capacity=20_000)
    onset, each = rng.uniform(3, 5) * MINUTE, max(1, int(rng.uniform(4e6, 3e7) / node.engine.block_bytes))
    # By what is written on it, less than 50 MB a node is nothing that anybody is told of.
    due_blocks = int(55e6 / node.engine.block_bytes) + 1
    pace = rng.uniform(2, 15)
    next_at = [onset]

    def act(tick: Tick) -> None:
        while tick.t >= next_at[0] and node.engine.kept < 0.3 * node.engine.capacity:
            node.engine.interruptions += 1
            node.engine.residue += each
            lose(node.engine, rng, each, next_at[0], "aborted_engine")
            next_at[0] += rng.expovariate(1 / pace)

    implied = frozenset({"kv_orphan", *OF_LEAK})
    due = 60.0 + 4 * pace * (1 + due_blocks / each)
    return Made(
        node.run(act),
        (
            Label("kv_orphan", clock.monotonic(onset), None, ENGINE, 20.0, frozenset({"spec_residue", *OF_LEAK})),
            Label("spec_residue", clock.monotonic(onset), None, ENGINE, due, implied),
        ),
    )


def interrupted_cleanly(rng: Random) -> Made:
    """Many interrupted drafts, all of them cleaned up."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, speculative=True)

    def act(tick: Tick) -> None:
        node.engine.interruptions += rng.random() < 0.5
        if node.engine.running and rng.random() < 0.3:
            node.engine.drop(rng.randrange(len(node.engine.running)))

    return Made(node.run(act))


RECIPES = (
    Recipe("leak of one block", "blocks", "kv_orphan", leak_of_one_block, 2, 4),
    Recipe("leak by aborts", "blocks", "kv_orphan", leak_by_aborts, 2, 4),
    Recipe("slow leak", "blocks", "kv_orphan", leak_slowly, 2, 3),
    Recipe("leak at once", "blocks", "kv_orphan", leak_at_once, 0, 3, unseen=True),
    Recipe("freed twice", "blocks", "kv_over_freed", over_freed, 4, 12),
    Recipe("delayed past its lease", "blocks", "kv_delayed_free", delayed_past_lease, 3, 7),
    Recipe("delayed without end", "blocks", "kv_delayed_free", delayed_without_end, 2, 5),
    Recipe("pinned for long", "blocks", "kv_pinned", pinned_for_long, 0, 12, unseen=True),
    Recipe("residue of drafts", "blocks", "spec_residue", residue, 4, 12),
    Recipe("delayed inside its lease", "blocks", "", delayed_inside_lease, 2, 14),
    Recipe("pinned in passing", "blocks", "", pinned_in_passing, 2, 14),
    Recipe("interrupted cleanly", "blocks", "", interrupted_cleanly, 2, 10),
)
