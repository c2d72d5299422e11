"""Things that happen at one moment: failed allocations, kills, restarts, engines and sources that are gone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from agent.oom.judge import judge
from agent.oom.log import Failure
from agent.sources.host.state import KilledState
from agent.subject import Subject
from bench.corpus.clock import HOUR, MINUTE, Clock, Tick, period_of
from bench.corpus.healthy import Serving
from bench.corpus.node import Node
from bench.corpus.scenario import Label, Made, Recipe
from bench.corpus.torch import GIB, MIB
from engine_hooks.allocator import MEMORY, OOM, MemoryEvent

ENGINE = Subject(scope="engine", engine="m")
OF_OOM = frozenset(
    {"over_budget", "engine_missing", "restart_loop", "allocator_fragmentation", "config_mismatch", "kv_stall"}
)


def failure(tick: Tick, message: str, kind: str = OOM, *, requested: int | None = None) -> Failure:
    """Return what a worker's failed allocation, or another error of ``kind``, is kept as."""
    event = MemoryEvent(
        sequence=1, kind=kind, at=tick.at, where="execute_model", message=message, device=0, requested_bytes=requested
    )
    said = judge(message, event) if kind in (OOM, MEMORY) else None
    return Failure(engine="m", process="", role="worker", rank=0, pid=4322, event=event, judgement=said)


def _size(value: float) -> str:
    return f"{value / GIB:.2f} GiB" if value >= GIB else f"{value / MIB:.2f} MiB"


def _torch_message(asked: float, total: float, free: float, *, own: float, inside: float, other: float) -> str:
    neighbour = f"Process 1002 has {_size(other)} memory in use. " if other else ""
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {_size(asked)}. GPU 0 has a total capacity of "
        f"{_size(total)} of which {_size(free)} is free. {neighbour}Process 1001 has {_size(own)} memory in use. Of "
        f"the allocated memory {_size(own - inside - 400 * MIB)} is allocated by PyTorch, and {_size(inside)} is "
        "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
    )


def message(rng: Random) -> tuple[str, int]:
    """Return torch's words for a failed allocation and the bytes that were asked for: truly out, in pieces, foreign."""
    total = rng.choice((16, 24, 40, 80)) * GIB * 0.99
    asked, how = rng.uniform(0.02, 2.2) * GIB, rng.choice(("out", "pieces", "foreign"))
    free = asked * rng.uniform(0.01, 0.9)
    inside = asked * rng.uniform(1.5, 15) if how == "pieces" else min(0.2 * GIB, asked * rng.uniform(0.01, 0.3))
    inside = min(inside, total / 4)
    other = rng.uniform(0.2, 0.5) * total if how == "foreign" else 0.0
    return _torch_message(asked, total, free, own=total - free - other, inside=inside, other=other), int(asked)


def out_of_memory(rng: Random) -> Made:
    """An allocation fails: truly out, in pieces, or taken by another; most engines do not survive it."""
    clock = Clock(rng, 11 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.6)
    onset, dies = rng.uniform(4, 8) * MINUTE, rng.random() < 0.6
    text, asked = message(rng)

    def act(tick: Tick) -> None:
        if tick.t >= onset and not node.failures:
            node.failures.append(failure(tick, text, requested=asked))
        if dies and tick.t >= onset + 3:
            node.phases["m"] = ("lost", "the link is gone")
        if dies and tick.t >= onset + 15:
            node.gone.add("m")

    return Made(node.run(act), (Label("oom", clock.monotonic(onset), None, ENGINE, 30.0, OF_OOM),))


def killed(rng: Random) -> Made:
    """The kernel ends a worker: its cgroup was full."""
    clock = Clock(rng, 11 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.5)
    onset = rng.uniform(4, 8) * MINUTE

    def act(tick: Tick) -> None:
        if tick.t >= onset and not node.killed:
            node.oom_kills += 1
            node.cgroup.kills += 1
            node.killed.append(
                KilledState(engine="m", role="worker", rank=0, pid=4322, at=tick.at, counted_by="/pod/m", certain=True)
            )
        if tick.t >= onset + 3:
            node.phases["m"] = ("lost", "the link is gone")

    implied = frozenset({"host_growth", *OF_OOM})
    return Made(node.run(act), (Label("oom", clock.monotonic(onset), None, ENGINE, 30.0, implied),))


def never_fits(rng: Random) -> Made:
    """Settings that can't work: 1.9 GiB are left where one request needs 2.45; it dies at each start."""
    clock = Clock(rng, 16 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.0)
    onset = rng.uniform(2, 4) * MINUTE
    need = rng.uniform(1.5, 20)
    have = need * rng.uniform(0.2, 0.9)
    text = (
        f"ValueError: To serve at least one request with the model's max seq len (65536), ({need:.2f} GiB KV cache is "
        f"needed, which is larger than the available KV cache memory ({have:.2f} GiB). Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )
    next_at, count = [onset], [0]
    node.gone.add("m")

    def act(tick: Tick) -> None:
        if tick.t >= next_at[0]:
            next_at[0] += rng.uniform(60, 120)
            count[0] += 1
            node.failures[:] = [failure(tick, text, MEMORY), *node.failures][:5]

    implied = frozenset({"oom", "restart_loop", "engine_missing"})
    return Made(node.run(act), (Label("config_mismatch", clock.monotonic(onset), None, ENGINE, 60.0, implied),))


def no_memory_error(rng: Random) -> Made:
    """A device error that is not about memory: a collective that broke, an address that was wrong."""
    clock = Clock(rng, 11 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    onset, kind = rng.uniform(4, 8) * MINUTE, rng.choice(("collective", "illegal_address", "driver"))

    def act(tick: Tick) -> None:
        if tick.t >= onset and not node.failures:
            node.failures.append(failure(tick, "NCCL error: unhandled system error", kind))

    return Made(node.run(act))


def restarting(rng: Random, clock: Clock, moments: list[float], away: float) -> tuple[Serving, Callable[[Tick], None]]:
    """Return a node whose engine ends at each of ``moments`` and is there again ``away`` seconds later."""
    node = Serving(rng, clock, load=0.4)
    left = list(moments)
    until = [0.0]

    def act(tick: Tick) -> None:
        if left and tick.t >= left[0]:
            left.pop(0)
            until[0] = tick.t + away
            node.gone.add("m")
        elif "m" in node.gone and tick.t >= until[0]:
            node.gone.discard("m")
            node.restart(node.engine, tick)

    return node, act


def restart_loop(rng: Random) -> Made:
    """It starts, serves for a few minutes, dies, and starts again."""
    clock = Clock(rng, 40 * MINUTE, 4.0, quiet=True)
    pace, away, first = rng.uniform(4, 11) * MINUTE, rng.uniform(15, 60), rng.uniform(3, 8) * MINUTE
    moments = [first + n * pace for n in range(int((clock.seconds - first) / pace))]
    node, act = restarting(rng, clock, moments, away)
    onset = clock.monotonic(moments[1] + away)
    return Made(
        node.run(act),
        (Label("restart_loop", onset, None, ENGINE, 60.0, frozenset({"engine_missing", "sensor_stale"})),),
    )


def restarted_once(rng: Random) -> Made:
    """A roll-out: one restart, half a minute to almost three minutes away, as long as weights are loaded."""
    clock = Clock(rng, 28 * MINUTE, 2.0, quiet=True)
    node, act = restarting(rng, clock, [rng.uniform(5, 12) * MINUTE], rng.uniform(20, 170))
    return Made(node.run(act))


def restarted_now_and_then(rng: Random) -> Made:
    """A restart each hour or two, by a schedule."""
    clock = Clock(rng, 6 * HOUR, 10.0, quiet=True)
    pace = rng.uniform(60, 110) * MINUTE
    node, act = restarting(rng, clock, [n * pace + 900 for n in range(1, 6)], rng.uniform(20, 150))
    return Made(node.run(act))


def _stopped(rng: Random, *, gone: bool) -> Made:
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    onset = rng.uniform(4, 7) * MINUTE

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            if gone and tick.t >= onset + 20:
                node.gone.add("m")
            node.phases["m"] = ("lost", "the link is gone") if gone else ("silent", "no word for 12.0 s")
            node.engine.frozen = True

    # One that is there and says nothing is as well called a sensor that is stale.
    implied = frozenset({"sensor_stale", "engine_missing", "kv_stall"})
    return Made(node.run(act), (Label("engine_missing", clock.monotonic(onset), None, ENGINE, 6 * MINUTE, implied),))


def stopped(rng: Random) -> Made:
    """An engine that is there and says nothing for good: stopped, or its thread hangs."""
    return _stopped(rng, gone=False)


def gone(rng: Random) -> Made:
    """An engine that goes in the middle of its work and does not return."""
    return _stopped(rng, gone=True)


def quiet_for_a_moment(rng: Random) -> Made:
    """No report for some seconds, as during a long step; then all is well."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    every, long = rng.uniform(120, 500), rng.uniform(2, 9)

    def act(tick: Tick) -> None:
        node.phases["m"] = ("silent", "no word for 4.0 s") if tick.t % every < long else ("live", "")

    return Made(node.run(act))


def source_hangs(rng: Random) -> Made:
    """The driver or /proc answers no more, for good: its numbers are not there, and that has to be said."""
    clock = Clock(rng, 18 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    onset, name = rng.uniform(5, 8) * MINUTE, rng.choice(("device", "host"))

    def act(tick: Tick) -> None:
        if tick.t >= onset:
            node.down[name] = "a reading takes longer than 5.0 s"

    subject = Subject(scope="source", source=name)
    return Made(node.run(act), (Label("sensor_stale", clock.monotonic(onset), None, subject, 5 * MINUTE),))


def source_absent(rng: Random) -> Made:
    """A node without GPUs: there is nothing to read, and never was."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.3)
    node.cards.clear()
    for torch in node.workers.pop("m"):
        del torch
    node.down["device"] = "no NVIDIA driver on this node: libnvidia-ml.so.1 is not there"
    node.absent.add("device")
    return Made(node.run())


def source_away_for_a_moment(rng: Random) -> Made:
    """A reading or two take too long."""
    clock = Clock(rng, 15 * MINUTE, period_of(rng))
    node = Serving(rng, clock, load=0.4)
    every, long, name = rng.uniform(120, 500), rng.uniform(2, 12), rng.choice(("device", "host"))

    def act(tick: Tick) -> None:
        node.down = {name: "a reading takes longer than 5.0 s"} if tick.t % every < long else {}

    return Made(node.run(act))


def nothing(rng: Random) -> Made:
    """A node on which nothing runs."""
    clock = Clock(rng, 2 * HOUR, 5.0)
    return Made(Node(rng, clock).run())


RECIPES = (
    Recipe("out of memory", "events", "oom", out_of_memory, 3, 10),
    Recipe("killed", "events", "oom", killed, 2, 6),
    Recipe("never fits", "events", "config_mismatch", never_fits, 2, 7),
    Recipe("restart loop", "events", "restart_loop", restart_loop, 3, 12),
    Recipe("stopped", "events", "engine_missing", stopped, 2, 5),
    Recipe("gone", "events", "engine_missing", gone, 2, 5),
    Recipe("source hangs", "events", "sensor_stale", source_hangs, 2, 8),
    Recipe("no error of memory", "events", "", no_memory_error, 2, 14),
    Recipe("restarted once", "events", "", restarted_once, 2, 12),
    Recipe("restarted now and then", "events", "", restarted_now_and_then, 1, 3, long=True),
    Recipe("quiet for a moment", "events", "", quiet_for_a_moment, 2, 16),
    Recipe("source absent", "events", "", source_absent, 2, 8),
    Recipe("source away for a moment", "events", "", source_away_for_a_moment, 2, 12),
    Recipe("nothing runs", "events", "", nothing, 2, 6),
)
