"""Healthy things that look like faults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from engine_hooks.simulator.core import ABORT
from engine_hooks.simulator.shapes import Shape, Shift
from engine_hooks.simulator.spec import Event, Truth
from engine_hooks.simulator.transfers import PEERS
from engine_hooks.simulator.world import World

STEPS = 12  # of a load that changes little by little
RETRIES = 3


class Happening:
    """One event of a run. ``begin`` is called when its time has come, ``end`` when it is over."""

    def __init__(self, world: World, event: Event, number: int) -> None:
        self.world = world
        self.event = event
        self.number = number
        self._began = self._ended = False
        self.prepare()

    SECONDS = 0.0  # how long it lasts where the spec does not say; 0: it is over at once

    @property
    def until(self) -> float:
        """When it is over, in seconds since the beginning."""
        return self.event.at + (self.event.seconds or self.SECONDS)

    def size(self, default: float) -> float:
        """Return the spec's size, or the kind's own."""
        return self.event.size or default

    def tick(self) -> None:
        """Begin and end in time."""
        now = self.world.now()
        if not self._began and now >= self.event.at:
            self._began = True
            self._say("began")
            self.begin()
        if self._began and not self._ended:
            if now >= self.until:
                self._ended = True
                self.end()
                self._say("ended")
            else:
                self.during()

    def prepare(self) -> None:
        """Announce changes of the load."""

    def begin(self) -> None:
        """It begins."""

    def during(self) -> None:
        """It goes on."""

    def end(self) -> None:
        """It is over."""

    def change(self, **what: Any) -> None:
        """Have the load be another while it lasts."""
        self.world.load.shifts.append(Shift(self.event.at, self.until, tenant=self.event.tenant, **what))

    def _say(self, what: str) -> None:
        self.world.tell(
            Truth(what=what, number=self.number, kind=self.event.kind, onset=self.event.at, tenant=self.event.tenant)
        )


class LongDocument(Happening):
    """One request with a very long prompt."""

    def begin(self) -> None:
        """It comes."""
        engine, load = self.world.spec.engine, self.world.load
        tokens = int(self.size(0.4 * engine.blocks * engine.block_size))
        load.add(self.event.at, Shape(load.texts.own(min(tokens, 2 * load.largest - 600)), 500), self.event.tenant)


class LongSessions(Happening):
    """A few requests that generate for many minutes."""

    NUMBER = 6

    def begin(self) -> None:
        """They come."""
        load, number = self.world.load, int(self.size(self.NUMBER))
        output = min(20_000, load.largest // number)
        for _ in range(number):
            load.add(self.event.at, Shape(load.texts.own(400), output), self.event.tenant)


class RetryBurst(Happening):
    """Clients that give up after a second or two, and ask again."""

    SECONDS = 60.0

    def begin(self) -> None:
        """They come, and leave, and come again."""
        load, draw = self.world.load, self.world.draw
        for _ in range(int(self.size(120))):
            at = self.event.at + draw.uniform(0.0, self.until - self.event.at)
            text = load.texts.own(self.world.spec.load.prompt)
            for retry in range(1 + RETRIES):
                leaves = at + draw.uniform(0.6, 2.0) if retry < RETRIES else None
                load.add(at, Shape(text[:], self.world.spec.load.output), self.event.tenant, leaves=leaves)
                at = at + 3.0 if leaves is None else leaves + 0.5


class Burst(Happening):
    """Several times as many requests for a while."""

    SECONDS = 30.0

    def prepare(self) -> None:
        """See :class:`Happening`."""
        self.change(rate=self.size(4.0))


class Quiet(Happening):
    """No requests for a while."""

    SECONDS = 300.0

    def prepare(self) -> None:
        """See :class:`Happening`."""
        self.change(rate=0.0)


class Ramp(Happening):
    """The load grows evenly, and stays."""

    SECONDS = 600.0

    def prepare(self) -> None:
        """See :class:`Happening`."""
        self._grow(lambda share: share)

    def _grow(self, curve: Callable[[float], float]) -> None:
        size, length = self.size(3.0), self.until - self.event.at
        for step in range(STEPS):
            since, last = self.event.at + length * step / STEPS, step == STEPS - 1
            until = math.inf if last else self.event.at + length * (step + 1) / STEPS
            rate = 1.0 + (size - 1.0) * curve((step + 1) / STEPS)
            self.world.load.shifts.append(Shift(since, until, tenant=self.event.tenant, rate=rate))


class Plateau(Ramp):
    """The load grows fast, then slower, to a plateau."""

    SECONDS = 900.0

    def prepare(self) -> None:
        """See :class:`Happening`."""
        self._grow(lambda share: (1.0 - math.exp(-4.0 * share)) / (1.0 - math.exp(-4.0)))


class MassAbort(Happening):
    """All clients go away at once."""

    def begin(self) -> None:
        """Abort all that is there."""
        core = self.world.core
        if core is not None:
            core.input_queue.put_nowait((ABORT, list(core.scheduler.requests)))


class BoundedDelay(Happening):
    """One peer (or ``size`` of them) is away: what it was to fetch is kept until the lease ends, and comes back."""

    SECONDS = 300.0

    def begin(self) -> None:
        """It does not answer from now on."""
        transfers = self.world.transfers
        if transfers is None:
            return
        away = set(PEERS[: int(self.size(1))])

        def loses(request: Any) -> bool:
            if self.world.now() >= self.until or request.kv_transfer_params.get("remote_host") not in away:
                return False
            transfers.give_up_later(request)
            return True

        transfers.loses_signal.append(loses)


class Restart(Happening):
    """The engine is restarted: it is away for a while, and knows nothing any more."""

    SECONDS = 40.0

    def begin(self) -> None:
        """It goes down."""
        self.world.restart(self.until - self.event.at)


class Pause(Happening):
    """The engine is paused on purpose: what it has stays where it is, and no token is made."""

    SECONDS = 60.0

    def begin(self) -> None:
        """Pause."""
        self._set("PAUSED_ALL")

    def end(self) -> None:
        """Go on."""
        self._set("UNPAUSED")

    def _set(self, state: str) -> None:
        from vllm.v1.core.sched.interface import PauseState

        if self.world.core is not None:
            self.world.core.scheduler.set_pause_state(PauseState[state])


class Sleep(Pause):
    """The engine sleeps: all requests are ended first, its cache is dropped, and nothing comes."""

    SECONDS = 120.0

    def prepare(self) -> None:
        """See :class:`Happening`."""
        self.change(rate=0.0)

    def begin(self) -> None:
        """End all, drop the cache, pause."""
        core = self.world.core
        if core is not None:
            from vllm.v1.request import RequestStatus

            core.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
            core.scheduler.reset_prefix_cache()
        super().begin()


EVENTS: dict[str, type[Happening]] = {
    "long_document": LongDocument,
    "long_sessions": LongSessions,
    "retry_burst": RetryBurst,
    "burst": Burst,
    "ramp": Ramp,
    "plateau": Plateau,
    "mass_abort": MassAbort,
    "bounded_delay": BoundedDelay,
    "restart": Restart,
    "pause": Pause,
    "sleep": Sleep,
    "quiet": Quiet,
}
