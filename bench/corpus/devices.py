"""GPUs: more ways to lose their memory, or them, beside those of ``cards.py``, and what only looks so."""

from __future__ import annotations

from random import Random

from agent.sources.device.state import Xid
from agent.sources.host.state import DeadHolder
from agent.subject import Subject
from bench.corpus.cards import ENGINE, GPU, OF_FULL, room
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.torch import MIB, Torch


def contexts_in_steps(rng: Random) -> Made:
    """A communicator that is made anew after each error and never given back, on the second GPU of two."""
    clock = Clock(rng, rng.uniform(6, 8) * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4, ranks=2)
    torch, onset = node.workers["m"][1], rng.uniform(1.0, 1.8) * HOUR
    step, pace = int(rng.uniform(0.0015, 0.003) * node.cards[1].total), rng.uniform(300, 600)
    next_at = [onset]

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0]:
            next_at[0] += pace * rng.uniform(0.7, 1.3)
            torch.context += step

    subject = Subject(scope="gpu", gpu="1")
    label = Label("device_growth", clock.monotonic(onset), None, subject, 2.5 * HOUR, OF_FULL)
    return Made(node.run(act), (label,))


def one_communicator(rng: Random) -> Made:
    """One communicator more, once: some hundred MiB that stay."""
    clock = Clock(rng, 6 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4, ranks=2)
    when, size = rng.uniform(1, 4) * HOUR, int(rng.uniform(100, 700)) * MIB
    before = [torch.context for torch in node.workers["m"]]

    def act(tick: Tick) -> None:
        for torch, context in zip(node.workers["m"], before, strict=True):
            torch.context = context + (size if tick.t >= when else 0)

    return Made(node.run(act))


def neighbour_grows(rng: Random) -> Made:
    """A notebook beside the engine loads more and more, until torch must retry and finds little."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    torch, onset, long = node.workers["m"][0], rng.uniform(4, 6) * MINUTE, rng.uniform(1, 3) * MINUTE
    left = [0]

    def act(tick: Tick) -> None:
        if tick.t < onset:
            left[0] = room(node) - 60 * MIB
            return
        share = min(1.0, (tick.t - onset) / long)
        node.cards[0].foreign = {88_001: max(1, int(share * left[0]))}
        if share >= 1 and rng.random() < clock.period / 12:
            torch.retries += 1

    implied = frozenset({"device_growth", "rank_imbalance"})
    due = long + 3 * MINUTE
    return Made(node.run(act), (Label("over_budget", clock.monotonic(onset), None, GPU, due, implied),))


def trainer_beside(rng: Random) -> Made:
    """A training job is started on the engine's GPU, reports to the same agent, and takes all that was left."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    onset = rng.uniform(4, 7) * MINUTE
    torch = Torch(rng, weights=0, kv=0, graphs=0, work=20 * MIB, context=400 * MIB)
    torch.free_parts = 10 * MIB

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            if "train" not in node.trainers:
                torch.kept = max(0, room(node) - 560 * MIB)
                torch.started_at = tick.at
                node.trainers["train"] = torch
            if rng.random() < clock.period / 12:
                node.workers["m"][0].retries += 1

    implied = frozenset({"device_growth", "rank_imbalance", "allocator_growth"})
    return Made(node.run(act), (Label("over_budget", clock.monotonic(onset), None, GPU, 3 * MINUTE, implied),))


def neighbour_with_room(rng: Random) -> Made:
    """Another process takes half of what the engine left, for a while; nothing is refused to anybody."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    begin, long = rng.uniform(3, 5) * MINUTE, rng.uniform(3, 9) * MINUTE
    size = [0]

    def act(tick: Tick) -> None:
        there = begin <= tick.t < begin + long
        if there:
            size[0] = size[0] or int(0.5 * room(node))
        node.cards[0].foreign = {88_002: size[0]} if there else {}

    return Made(node.run(act))


def contexts_on_one(rng: Random) -> Made:
    """The contexts of all ranks' helpers lie on one GPU: it is fuller than the others by gigabytes."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, ranks=rng.choice((2, 4)))
    rank, onset = rng.randrange(len(node.cards)), rng.uniform(3, 5) * MINUTE
    before, size = node.workers["m"][rank].context, [0]

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            size[0] = size[0] or int(room(node, rank) * rng.uniform(0.8, 0.95))
            node.workers["m"][rank].context = before + size[0]

    implied = frozenset({"over_budget", "device_growth"})
    return Made(node.run(act), (Label("rank_imbalance", clock.monotonic(onset), None, ENGINE, 10 * MINUTE, implied),))


def unequal_pools(rng: Random) -> Made:
    """After a restart one rank has a tenth to a third fewer blocks than the others: something was on its GPU then."""
    clock = Clock(rng, 14 * MINUTE, period_of(rng), quiet=True)
    node = Serving(rng, clock, load=0.3, ranks=rng.choice((2, 4)))
    rank, onset, share = rng.randrange(len(node.cards)), rng.uniform(3, 5) * MINUTE, rng.uniform(0.1, 0.35)
    done = [False]

    def act(tick: Tick) -> None:
        if tick.t >= onset and not done[0]:
            done[0] = True
            node.restart(node.engine, tick)
            torch = node.workers["m"][rank]
            torch.kv_blocks -= int(share * torch.kv_blocks)

    implied = frozenset({"device_growth"})
    return Made(node.run(act), (Label("rank_imbalance", clock.monotonic(onset), None, ENGINE, 8 * MINUTE, implied),))


def killed_and_kept(rng: Random) -> Made:
    """A worker is killed and started anew; what the old one had in shared handles stays booked on its pid."""
    clock = Clock(rng, 12 * MINUTE, period_of(rng), quiet=True)
    node = Serving(rng, clock, load=0.3)
    onset, share = rng.uniform(3, 6) * MINUTE, rng.uniform(0.2, 0.85)

    def act(tick: Tick) -> None:
        if tick.t >= onset and not node.dead:
            pid, size = node.workers["m"][0].pid, int(share * room(node))
            node.restart(node.engine, tick)
            node.dead = [DeadHolder(gpu="0", pid=pid, used_bytes=size)]

    implied = frozenset({"over_budget", "device_growth"})
    return Made(node.run(act), (Label("dead_process_memory", clock.monotonic(onset), None, GPU, 3 * MINUTE, implied),))


def _nights(rng: Random, ranks: int, residue: list[float]) -> Made:
    """It sleeps twice; ``residue``: the share that stays on one of its GPUs, each time."""
    clock = Clock(rng, 27 * MINUTE, 2.0)
    node = Serving(rng, clock, load=0.3, ranks=ranks)
    bad, times = node.workers["m"][rng.randrange(ranks)], node.times
    begins = [rng.uniform(3, 5) * MINUTE, rng.uniform(13, 15) * MINUTE]
    long = rng.uniform(6.5, 8) * MINUTE

    def act(tick: Tick) -> None:
        night = next((n for n, begin in enumerate(begins) if begin <= tick.t < begin + long), None)
        near = any(begin - 20 <= tick.t < begin + long + 5 for begin in begins)
        for torch in node.workers["m"]:
            torch.sleeps = True
            if night is not None and not torch.asleep:
                node.engine.abort_all()
            torch.asleep = night is not None
            torch.residue = int(residue[night or 0] * (torch.weights + torch.kv)) if torch is bad else 0
        node.times = 0.0 if near else times

    labels = tuple(
        Label(
            "sleep_residue",
            clock.monotonic(begin),
            clock.monotonic(begin + long),
            ENGINE,
            5 * MINUTE,
            frozenset({"device_growth", "over_budget", "rank_imbalance"}),
        )
        for begin, share in zip(begins, residue, strict=True)
        if share
    )
    return Made(node.run(act), labels)


def one_rank_sleeps_badly(rng: Random) -> Made:
    """Of two ranks one keeps its memory while the engine sleeps."""
    return _nights(rng, 2, [rng.uniform(0.35, 1.0), 0.0])


def sleeps_badly_again(rng: Random) -> Made:
    """The first time all goes; the second time, after some work, a good part stays."""
    return _nights(rng, 1, [0.0, rng.uniform(0.3, 1.0)])


def sleeps_twice(rng: Random) -> Made:
    """It sleeps and wakes and sleeps, on one GPU or two, and each time all comes and goes."""
    return _nights(rng, rng.choice((1, 2)), [0.0, 0.0])


def _errors(rng: Random, codes: tuple[int, ...], *, gone: bool = False, silent: bool = False) -> Made:
    clock = Clock(rng, 12 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    onset, code, card = rng.uniform(3, 6) * MINUTE, rng.choice(codes) if codes else 0, node.cards[0]

    def act(tick: Tick) -> None:
        if tick.t < onset:
            return
        if code and not card.xids:
            card.xids = (Xid(code=code, count=1, last_at=tick.at),)
        if gone and tick.t >= onset + 4:
            card.lost = "GPU is lost"
            node.engine.stalled_by = "unknown"
        if silent:
            card.silent = "no answer for 2.0 s"

    implied = frozenset({"kv_stall", "kv_pressure", "sensor_stale", "rank_imbalance"})
    label = Label("gpu_lost", clock.monotonic(onset), None, GPU, 90.0, implied)
    return Made(node.run(act), (label,) if gone or silent else ())


def off_the_bus(rng: Random) -> Made:
    """An XID first, then nothing: off the bus, or its processor of work has failed."""
    return _errors(rng, (79, 119, 62), gone=True)


def answers_no_more(rng: Random) -> Made:
    """The driver does not answer for it any more, and says nothing else."""
    return _errors(rng, (), silent=True)


def application_error(rng: Random) -> Made:
    """An XID that is the program's own fault, or one that was mended: the GPU is as good as before."""
    return _errors(rng, (13, 31, 43, 45, 63))


RECIPES = (
    Recipe("contexts in steps", "cards", "device_growth", contexts_in_steps, 2, 8, long=True),
    Recipe("neighbour grows", "cards", "over_budget", neighbour_grows, 2, 7),
    Recipe("trainer beside the engine", "cards", "over_budget", trainer_beside, 0, 5, unseen=True),
    Recipe("contexts on one GPU", "cards", "rank_imbalance", contexts_on_one, 0, 7, unseen=True),
    Recipe("unequal pools", "cards", "rank_imbalance", unequal_pools, 0, 6, unseen=True),
    Recipe("killed and kept", "cards", "dead_process_memory", killed_and_kept, 2, 8),
    Recipe("one rank sleeps badly", "cards", "sleep_residue", one_rank_sleeps_badly, 0, 7, unseen=True),
    Recipe("sleeps badly again", "cards", "sleep_residue", sleeps_badly_again, 0, 6, unseen=True),
    Recipe("off the bus", "cards", "gpu_lost", off_the_bus, 1, 4),
    Recipe("answers no more", "cards", "gpu_lost", answers_no_more, 1, 5),
    Recipe("one communicator", "cards", "", one_communicator, 1, 4, long=True),
    Recipe("neighbour with room", "cards", "", neighbour_with_room, 2, 10),
    Recipe("sleeps twice", "cards", "", sleeps_twice, 1, 8),
    Recipe("application's error", "cards", "", application_error, 2, 14),
)
