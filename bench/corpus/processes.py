"""Processes: torch's memory in pieces and growing, hosts' memory, failures and restarts, in more ways; their twins."""

from __future__ import annotations

from random import Random

from agent.oom.log import Failure
from agent.sources.host.state import KilledState
from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.events import ENGINE, OF_OOM, failure, message, restarting
from bench.corpus.healthy import Serving
from bench.corpus.hosts import ANY, OF_GROWTH
from bench.corpus.node import Card, Node
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.torch import GIB, MIB, Torch
from bench.corpus.torches import OF_FULL, TRAINER, WORKER


def pieces_of_a_long_prompt(rng: Random) -> Made:
    """One very long prompt after the other leaves ever more free memory that is in pieces, on a GPU that is full."""
    clock = Clock(rng, 30 * MINUTE, 2.0)
    node = Serving(rng, clock, load=0.5)
    torch, card = node.workers["m"][0], node.cards[0]
    onset, number = rng.uniform(5, 8) * MINUTE, rng.randint(3, 6)
    pace, come, before = rng.uniform(60, 120), 0, torch.free_parts
    small, left = torch.largest, 0

    def act(tick: Tick) -> None:
        nonlocal come, left
        if tick.t < onset:
            left = card.total - card.reserved - card.rest - torch.booked
            return
        come = min(number, 1 + int((tick.t - onset) / pace))
        torch.free_parts = before + int(come / number * (left - 130 * MIB))
        torch.largest = small + (0.05 - small) * come / number
        if come == number and rng.random() < clock.period / 12:
            torch.retries += 1

    due = number * pace + 5 * MINUTE
    label = Label("allocator_fragmentation", clock.monotonic(onset), None, WORKER, due, OF_FULL)
    return Made(node.run(act), (label,))


def one_retry(rng: Random) -> Made:
    """A long prompt once: torch empties its cache, tries again, and all is well."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    torch, when, small = node.workers["m"][0], rng.uniform(4, 9) * MINUTE, node.workers["m"][0].largest
    before = torch.free_parts

    def act(tick: Tick) -> None:
        torch.retries = int(tick.t >= when)
        torch.free_parts = before // 2 if tick.t >= when else before
        torch.largest = min(0.9, small + 0.2) if tick.t >= when else small

    return Made(node.run(act))


def rank_grows(rng: Random) -> Made:
    """The tensors of one rank of two grow for hours: the cache of what it alone receives."""
    clock = Clock(rng, rng.uniform(6, 8) * HOUR, 40.0)
    node = Serving(rng, clock, load=0.3, ranks=2)
    rank, onset = rng.randrange(2), rng.uniform(1.2, 2.0) * HOUR
    torch, per_hour = node.workers["m"][rank], node.cards[rank].total * 0.09 / rng.uniform(5, 6)

    def act(tick: Tick) -> None:
        torch.kept = int(max(0.0, tick.t - onset) / HOUR * per_hour)

    due = max(1.5 * HOUR, 4.5 * torch.work / per_hour * HOUR)
    subject = Subject(scope="process", engine="m", process=f"worker/{rank}")
    label = Label("allocator_growth", clock.monotonic(onset), None, subject, due, OF_FULL)
    return Made(node.run(act), (label,))


def shared_memory(rng: Random) -> Made:
    """What grows is in the cgroup and in no process: files in shared memory that nobody removes, up to its limit."""
    clock = Clock(rng, 3 * HOUR, 15.0)
    node = Serving(rng, clock, load=0.4, limit=None)
    base = sum(process.base + process.file for process in node.processes)
    size, long = rng.uniform(8, 40) * GIB, rng.uniform(0.7, 2.0) * HOUR
    node.cgroup.limit, onset = int(base + size), rng.uniform(20, 40) * MINUTE

    def act(tick: Tick) -> None:
        node.cgroup.more = int(size * min(0.96, max(0.0, (tick.t - onset) / long)))

    due = max(12 * MINUTE, long - 25 * MINUTE)
    return Made(node.run(act), (Label("host_growth", clock.monotonic(onset), None, ANY, due, OF_GROWTH),))


def buffers_that_fill(rng: Random) -> Made:
    """A pinned buffer is filled for some minutes and then is full, far from any limit."""
    clock = Clock(rng, 5 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4, limit=None)
    begin, long, size = rng.uniform(0.3, 2) * HOUR, rng.uniform(1, 4) * MINUTE, rng.uniform(2, 20) * GIB

    def act(tick: Tick) -> None:
        node.core.more = int(size * min(1.0, max(0.0, (tick.t - begin) / long)))

    return Made(node.run(act))


def trainer_fails(rng: Random) -> Made:
    """A training process without an engine fails to allocate, goes on with a smaller batch, or ends."""
    clock = Clock(rng, 11 * MINUTE, period_of(rng))
    node = Node(rng, clock)
    node.cards.append(Card(rng, "0", 40 * GIB))
    node.trainers["train"] = Torch(rng, weights=8 * GIB, kv=0, graphs=0, work=6 * GIB, period=rng.uniform(2, 30))
    onset, ends = rng.uniform(4, 7) * MINUTE, rng.random() < 0.5
    text, asked = message(rng)

    def act(tick: Tick) -> None:
        if tick.t >= onset and not node.failures:
            event = failure(tick, text, requested=asked)
            node.failures.append(
                Failure(
                    engine="",
                    process="train",
                    role="torch",
                    rank=0,
                    pid=event.pid,
                    event=event.event,
                    judgement=event.judgement,
                )
            )
        if ends and tick.t >= onset + 10:
            node.trainers.pop("train", None)

    return Made(node.run(act), (Label("oom", clock.monotonic(onset), None, TRAINER, 30.0, OF_OOM),))


def loop_of_kills(rng: Random) -> Made:
    """The kernel kills it each time that it has served for some minutes: its memory limit is too low."""
    clock = Clock(rng, 36 * MINUTE, 4.0, quiet=True)
    pace, away, first = rng.uniform(5, 10) * MINUTE, rng.uniform(15, 60), rng.uniform(3, 5) * MINUTE
    moments = [first + n * pace for n in range(int((clock.seconds - first) / pace))]
    node, act = restarting(rng, clock, moments, away)
    left = list(moments)

    def killed(tick: Tick) -> None:
        if left and tick.t >= left[0]:
            left.pop(0)
            node.oom_kills += 1
            node.cgroup.kills += 1
            node.killed.append(
                KilledState(
                    engine="m", role="core", rank=0, pid=node.engine.pid, at=tick.at, counted_by="/pod/m", certain=True
                )
            )
        act(tick)

    engine = frozenset({"engine_missing", "sensor_stale", "restart_loop", "host_growth"})
    return Made(
        node.run(killed),
        (
            Label("oom", clock.monotonic(moments[0]), None, ENGINE, 30.0, engine),
            Label("restart_loop", clock.monotonic(moments[1] + away), None, ENGINE, 60.0, engine | {"oom"}),
        ),
    )


def roll_out_of_two(rng: Random) -> Made:
    """Two restarts an hour apart: a roll-out, and its roll-back."""
    clock = Clock(rng, 100 * MINUTE, 5.0, quiet=True)
    first = rng.uniform(8, 15) * MINUTE
    node, act = restarting(rng, clock, [first, first + rng.uniform(50, 70) * MINUTE], rng.uniform(20, 150))
    return Made(node.run(act))


RECIPES = (
    Recipe("pieces of a long prompt", "torch", "allocator_fragmentation", pieces_of_a_long_prompt, 2, 7),
    Recipe("a rank's tensors grow", "torch", "allocator_growth", rank_grows, 1, 5, long=True),
    Recipe("host: shared memory", "hosts", "host_growth", shared_memory, 2, 6, long=True),
    Recipe("trainer fails", "events", "oom", trainer_fails, 1, 4),
    Recipe("loop of kills", "events", "restart_loop", loop_of_kills, 2, 8),
    Recipe("one retry", "torch", "", one_retry, 2, 16),
    Recipe("host: buffers that fill", "hosts", "", buffers_that_fill, 1, 6, long=True),
    Recipe("roll-out and roll-back", "events", "", roll_out_of_two, 1, 6),
)
