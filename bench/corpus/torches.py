"""torch's allocators: memory in pieces, memory that only grows, and what only looks so."""

from __future__ import annotations

import math
from random import Random

from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.node import Card, Node
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.torch import GIB, MIB, Torch

WORKER = Subject(scope="process", engine="m", process="worker/0")
TRAINER = Subject(scope="process", process="train")
# A GPU that fills up because torch holds ever more of it, or in pieces.
OF_FULL = frozenset({"device_growth", "over_budget", "allocator_growth", "rank_imbalance"})


def in_pieces(rng: Random) -> Made:
    """Gigabytes that torch keeps in pieces on a full device, and retries (pytorch#152135: 3.87 GiB of 79)."""
    clock = Clock(rng, 32 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    torch, card = node.workers["m"][0], node.cards[0]
    onset, long = rng.uniform(8, 14) * MINUTE, rng.uniform(5, 15) * MINUTE
    room = 0
    before, small = torch.free_parts, torch.largest

    def act(tick: Tick) -> None:
        nonlocal room
        if tick.t < onset:
            room = card.total - card.reserved - card.rest - torch.booked
            return
        share = min(1.0, (tick.t - onset) / long)
        torch.free_parts = before + int(share * (room - 120 * MIB))
        torch.largest = small * (1 - share) + 0.04 * share
        if share >= 1 and rng.random() < clock.period / 25:
            torch.retries += 1

    label = Label("allocator_fragmentation", clock.monotonic(onset), None, WORKER, long + 5 * MINUTE, OF_FULL)
    return Made(node.run(act), (label,))


def trainer_in_pieces(rng: Random) -> Made:
    """A PyTorch process of nobody's engine whose shapes vary: a third and more of what it has lies in small pieces."""
    clock = Clock(rng, 32 * MINUTE, period_of(rng))
    node = Node(rng, clock)
    total = 40 * GIB
    node.cards.append(Card(rng, "0", total))
    torch = Torch(rng, weights=8 * GIB, kv=0, graphs=0, work=int(5 * GIB), period=rng.uniform(2, 8))
    node.trainers["train"] = torch
    onset, long = rng.uniform(8, 14) * MINUTE, rng.uniform(5, 15) * MINUTE
    small = torch.largest

    def act(tick: Tick) -> None:
        share = min(1.0, max(0.0, (tick.t - onset) / long))
        torch.free_parts = int(500 * MIB + share * (total - 16 * GIB - torch.work))
        torch.largest = small * (1 - share) + 0.03 * share
        if share >= 1 and rng.random() < clock.period / 15:
            torch.retries += 1

    label = Label("allocator_fragmentation", clock.monotonic(onset), None, TRAINER, long + 5 * MINUTE, OF_FULL)
    return Made(node.run(act), (label,))


def _growing(clock: Clock, node: Node, torch: Torch, *, onset: float, per_hour: float, step: float = 0) -> Made:
    subject = TRAINER if node.trainers else WORKER

    def act(tick: Tick) -> None:
        grown = max(0.0, tick.t - onset) / HOUR * per_hour
        torch.kept = int(grown // step * step) if step else int(grown)

    # Over hours the saw-teeth are the noise: a rise is sure when it is several times as large as they are.
    teeth = torch.work * 1.5
    due = max(1.5 * HOUR, 3 * teeth / per_hour * HOUR, 4 * step / per_hour * HOUR)
    label = Label("allocator_growth", clock.monotonic(onset), None, subject, due, OF_FULL)
    return Made(node.run(act), (label,))


def growing(rng: Random) -> Made:
    """A worker's tensors grow for hours (vllm#12610, #17243; 2 GiB an hour over 16.75 h in one report)."""
    clock = Clock(rng, rng.uniform(7, 10) * HOUR, 40.0)
    node = Serving(rng, clock, load=0.3)
    room = node.cards[0].total * 0.09
    return _growing(clock, node, node.workers["m"][0], onset=rng.uniform(1.5, 2.5) * HOUR, per_hour=room / 6)


def growing_in_steps(rng: Random) -> Made:
    """A step every few minutes that never comes down."""
    clock = Clock(rng, rng.uniform(6, 9) * HOUR, 40.0)
    node = Serving(rng, clock, load=0.3)
    room = node.cards[0].total * 0.09
    step = room / rng.uniform(20, 60)
    return _growing(clock, node, node.workers["m"][0], onset=rng.uniform(1.2, 2.0) * HOUR, per_hour=room / 5, step=step)


def trainer_growing(rng: Random) -> Made:
    """A training process that keeps a graph alive: its floor rises under teeth of seconds to minutes."""
    clock = Clock(rng, rng.uniform(6, 9) * HOUR, 40.0)
    node = Node(rng, clock)
    node.cards.append(Card(rng, "0", 80 * GIB))
    torch = Torch(rng, weights=20 * GIB, kv=0, graphs=0, work=6 * GIB, period=rng.uniform(60, 300))
    node.trainers["train"] = torch
    return _growing(clock, node, torch, onset=rng.uniform(1.0, 2.0) * HOUR, per_hour=rng.uniform(3, 8) * GIB)


def teeth(rng: Random) -> Made:
    """Training: gigabytes come and go with each step or each evaluation, for hours."""
    clock = Clock(rng, 9 * HOUR, 40.0)
    node = Node(rng, clock)
    node.cards.append(Card(rng, "0", 80 * GIB))
    node.trainers["train"] = Torch(
        rng,
        weights=int(rng.uniform(8, 30) * GIB),
        kv=0,
        graphs=0,
        work=int(rng.uniform(4, 25) * GIB),
        period=rng.uniform(20, 300),
    )
    return Made(node.run())


def levels_off(rng: Random) -> Made:
    """Growth that becomes slower and ends: caches of kernels, shapes seen for the first time, warm-up."""
    clock = Clock(rng, 9 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4)
    torch, room = node.workers["m"][0], node.cards[0].total * rng.uniform(0.02, 0.06)
    after, begin = rng.uniform(0.2, 0.8) * HOUR, rng.uniform(0, 1) * HOUR

    def act(tick: Tick) -> None:
        torch.kept = int(room * (1 - math.exp(-max(0.0, tick.t - begin) / after)))

    return Made(node.run(act))


def starting(rng: Random) -> Made:
    """Weights are loaded, graphs captured (+2,464 MiB), the pool allocated: all in a few minutes, then it serves."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5, ranks=rng.choice((1, 2)))
    long, times = rng.uniform(60, 240), node.times
    node.engine.running.clear()
    node.engine.cached = 0

    def act(tick: Tick) -> None:
        node.engine.started_at = node.engine.started_at or tick.at
        share = min(1.0, tick.t / long)
        for torch in node.workers["m"]:
            torch.loaded = min(1.0, 0.02 + share)
        for process in node.hosts:
            process.more = int(-0.8 * process.base * (1 - share))
        node.times = times if share >= 1 else 0.0

    return Made(node.run(act))


def small_pieces(rng: Random) -> Made:
    """A worker that has little free, in pieces, as all of them do: nothing comes of it for hours."""
    clock = Clock(rng, 7 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.5)
    torch = node.workers["m"][0]
    torch.free_parts, torch.largest = int(rng.uniform(30, 700)) * MIB, rng.uniform(0.05, 0.3)
    return Made(node.run())


def one_step(rng: Random) -> Made:
    """An adapter or a longer prompt than ever takes a gigabyte, once, and it stays."""
    clock = Clock(rng, 7 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.5)
    torch, when, size = node.workers["m"][0], rng.uniform(1, 6) * HOUR, rng.uniform(0.005, 0.03) * node.cards[0].total

    def act(tick: Tick) -> None:
        torch.kept = int(size) if tick.t >= when else 0

    return Made(node.run(act))


RECIPES = (
    Recipe("in pieces", "torch", "allocator_fragmentation", in_pieces, 3, 8),
    Recipe("trainer in pieces", "torch", "allocator_fragmentation", trainer_in_pieces, 2, 5),
    Recipe("tensors grow", "torch", "allocator_growth", growing, 2, 6, long=True),
    Recipe("tensors grow in steps", "torch", "allocator_growth", growing_in_steps, 0, 5, unseen=True, long=True),
    Recipe("trainer grows", "torch", "allocator_growth", trainer_growing, 2, 4, long=True),
    Recipe("training teeth", "torch", "", teeth, 1, 4, long=True),
    Recipe("tensors level off", "torch", "", levels_off, 1, 5, long=True),
    Recipe("starting", "torch", "", starting, 2, 14),
    Recipe("small pieces", "torch", "", small_pieces, 1, 3, long=True),
    Recipe("one step", "torch", "", one_step, 1, 4, long=True),
)
