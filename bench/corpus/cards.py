"""GPUs: memory beside torch's that grows, neighbours, ranks that differ, dead holders, sleep, loss."""

from __future__ import annotations

from random import Random

from agent.sources.host.state import DeadHolder
from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.torch import GIB, MIB

GPU = Subject(scope="gpu", gpu="0")
ENGINE = Subject(scope="engine", engine="m")
OF_FULL = frozenset({"over_budget", "rank_imbalance", "device_growth"})


def room(node: Serving, gpu: int = 0) -> int:
    """Bytes of a GPU that are free now."""
    card = node.cards[gpu]
    booked = sum(torch.booked for torch in node.workers["m"] if torch.gpu == card.gpu)
    return card.total - card.reserved - card.rest - booked - sum(card.foreign.values())


def context_grows(rng: Random) -> Made:
    """Memory beside torch's, of the engine's own process, grows for hours: communicators, libraries' workspaces."""
    clock = Clock(rng, rng.uniform(6, 9) * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4)
    torch, onset = node.workers["m"][0], rng.uniform(1.0, 2.0) * HOUR
    context, per_hour = torch.context, rng.uniform(0.01, 0.02) * node.cards[0].total

    def act(tick: Tick) -> None:
        torch.context = context + int(max(0.0, tick.t - onset) / HOUR * per_hour) // (2 * MIB) * 2 * MIB

    label = Label("device_growth", clock.monotonic(onset), None, GPU, 2.5 * HOUR, OF_FULL)
    return Made(node.run(act), (label,))


def nobody_grows(rng: Random) -> Made:
    """What nobody is named for grows in steps: registered transfer memory that the driver books on no process."""
    clock = Clock(rng, rng.uniform(6, 9) * HOUR, 40.0)
    node = Serving(rng, clock, load=0.4)
    card, onset = node.cards[0], rng.uniform(1.0, 2.0) * HOUR
    step = int(rng.uniform(0.0008, 0.002) * card.total)
    pace, next_at = rng.uniform(240, 420), [onset]

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0]:
            next_at[0] += pace
            card.rest += step

    label = Label("device_growth", clock.monotonic(onset), None, GPU, 2.5 * HOUR, OF_FULL)
    return Made(node.run(act), (label,))


def neighbour(rng: Random) -> Made:
    """Another process takes what the engine's head-room was, and torch must retry (reports: 16 GiB foreign)."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    torch, onset, pid = node.workers["m"][0], rng.uniform(6, 10) * MINUTE, rng.randrange(60_000, 90_000)

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            if pid not in node.cards[0].foreign:
                node.cards[0].foreign[pid] = max(0, room(node) - 90 * MIB)
            if rng.random() < clock.period / 20:
                torch.retries += 1

    label = Label(
        "over_budget", clock.monotonic(onset), None, GPU, 3 * MINUTE, frozenset({"device_growth", "rank_imbalance"})
    )
    return Made(node.run(act), (label,))


def small_neighbour(rng: Random) -> Made:
    """A desktop, an exporter, a notebook: some hundred MiB beside the engine, now and then."""
    clock = Clock(rng, 6 * HOUR, 40.0)
    node = Serving(rng, clock, load=0.5)
    size, every = int(rng.uniform(80, 450)) * MIB, rng.uniform(600, 4_000)

    def act(tick: Tick) -> None:
        node.cards[0].foreign = {77_777: size} if tick.t % every < every / 2 else {}

    return Made(node.run(act))


def uneven(rng: Random) -> Made:
    """One of four ranks has gigabytes more than the others, for good (contexts of a program on the first GPU)."""
    clock = Clock(rng, 22 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, ranks=rng.choice((2, 4)))
    rank, onset = rng.randrange(len(node.cards)), rng.uniform(6, 10) * MINUTE
    size = 0

    def act(tick: Tick) -> None:
        nonlocal size
        if tick.t >= onset:
            size = size or int(room(node, rank) * rng.uniform(0.75, 0.95))
            node.workers["m"][rank].kept = size

    implied = frozenset({"over_budget", "allocator_growth", "device_growth"})
    return Made(node.run(act), (Label("rank_imbalance", clock.monotonic(onset), None, ENGINE, 10 * MINUTE, implied),))


def alike(rng: Random) -> Made:
    """Four ranks as they are: some hundred MiB more on the first, noise on all."""
    clock = Clock(rng, 8 * HOUR, 40.0)
    return Made(Serving(rng, clock, load=0.5, ranks=rng.choice((2, 4))).run())


def dead_holder(rng: Random) -> Made:
    """Processes that are gone hold memory: 160 GiB on 25 pids, 20 GiB on three."""
    clock = Clock(rng, 13 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    onset, number = rng.uniform(5, 8) * MINUTE, rng.randint(1, 6)

    def act(tick: Tick) -> None:
        if tick.t >= onset and not node.dead:
            share = int(min(room(node) * 0.8, rng.uniform(1, 22) * GIB) / number)
            node.dead = [DeadHolder(gpu="0", pid=500 + n, used_bytes=share) for n in range(number)]

    implied = frozenset({"over_budget", "device_growth"})
    return Made(node.run(act), (Label("dead_process_memory", clock.monotonic(onset), None, GPU, 3 * MINUTE, implied),))


def dying(rng: Random) -> Made:
    """A process that has just ended is still booked for some seconds, as the driver takes its time."""
    clock = Clock(rng, 25 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    every, long = rng.uniform(300, 900), rng.uniform(3, 14)

    def act(tick: Tick) -> None:
        dying_now = 60 < tick.t % every < 60 + long
        node.dead = [DeadHolder(gpu="0", pid=501, used_bytes=400 * MIB)] if dying_now else []

    return Made(node.run(act))


def _asleep(rng: Random, residue: float) -> Made:
    clock = Clock(rng, 25 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    torch, begin = node.workers["m"][0], rng.uniform(6, 10) * MINUTE
    torch.sleeps, times = True, node.times
    long = rng.uniform(9, 13) * MINUTE

    def act(tick: Tick) -> None:
        sleeping = begin <= tick.t < begin + long
        if sleeping and not torch.asleep:
            node.engine.abort_all()
        torch.asleep = sleeping
        torch.residue = int(residue * (torch.weights + torch.kv))
        node.times = 0.0 if begin - 20 <= tick.t < begin + long + 5 else times

    if not residue:
        return Made(node.run(act))
    implied = frozenset({"device_growth", "over_budget"})
    onset, ended = clock.monotonic(begin), clock.monotonic(begin + long)
    return Made(node.run(act), (Label("sleep_residue", onset, ended, ENGINE, 5 * MINUTE, implied),))


def sleeps_badly(rng: Random) -> Made:
    """It sleeps and its memory stays on the device (vllm#47654; 16 GB left where 1.14 is usual)."""
    return _asleep(rng, rng.uniform(0.3, 1.0))


def sleeps_well(rng: Random) -> Made:
    """It sleeps for ten minutes, and wakes: 50 GiB go and come."""
    return _asleep(rng, 0.0)


def lost(rng: Random) -> Made:
    """A GPU falls off the bus."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4, ranks=rng.choice((1, 2)))
    onset, gpu = rng.uniform(4, 8) * MINUTE, rng.randrange(len(node.cards))
    stuck = rng.random() < 0.7

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.cards[gpu].lost = "GPU is lost"
            node.engine.stalled_by = "unknown" if stuck else ""

    implied = frozenset({"kv_stall", "kv_pressure", "sensor_stale", "rank_imbalance"})
    subject = Subject(scope="gpu", gpu=str(gpu))
    return Made(node.run(act), (Label("gpu_lost", clock.monotonic(onset), None, subject, 60.0, implied),))


def slow_driver(rng: Random) -> Made:
    """The driver does not answer for some seconds, again and again, and then does."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    every, long = rng.uniform(120, 600), rng.uniform(1, 8)

    def act(tick: Tick) -> None:
        node.cards[0].silent = "no answer for 0.5 s" if tick.t % every < long else ""

    return Made(node.run(act))


def by_day_and_night(rng: Random) -> Made:
    """More than a day of an ordinary node, each 10 to 30 seconds."""
    clock = Clock(rng, 30 * HOUR, 60.0)
    return Made(Serving(rng, clock, load=rng.uniform(0.35, 0.8), ranks=rng.choice((1, 1, 2))).run())


RECIPES = (
    Recipe("context grows", "cards", "device_growth", context_grows, 2, 6, long=True),
    Recipe("nobody's memory grows", "cards", "device_growth", nobody_grows, 0, 6, unseen=True, long=True),
    Recipe("neighbour", "cards", "over_budget", neighbour, 2, 8),
    Recipe("uneven ranks", "cards", "rank_imbalance", uneven, 0, 7, unseen=True),
    Recipe("dead holder", "cards", "dead_process_memory", dead_holder, 3, 12),
    Recipe("sleeps badly", "cards", "sleep_residue", sleeps_badly, 0, 7, unseen=True),
    Recipe("lost GPU", "cards", "gpu_lost", lost, 3, 12),
    Recipe("small neighbour", "cards", "", small_neighbour, 1, 3, long=True),
    Recipe("ranks alike", "cards", "", alike, 1, 3, long=True),
    Recipe("dying process", "cards", "", dying, 2, 10),
    Recipe("sleeps well", "cards", "", sleeps_well, 2, 10),
    Recipe("slow driver", "cards", "", slow_driver, 2, 12),
    Recipe("by day and night", "cards", "", by_day_and_night, 1, 3, long=True),
)
