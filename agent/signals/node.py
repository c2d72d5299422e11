"""All signals of a node: folded from one state after the other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from typing import Any, TypeVar

from agent.policy.types import Policy
from agent.signals.allocators import AllocatorsTracker
from agent.signals.baseline import MOST_ENGINES, Baselines, grown_old, usable
from agent.signals.engine import EngineTracker
from agent.signals.gpus import GpusTracker
from agent.signals.hosts import HostsTracker
from agent.signals.kept import MOST_TRACKS, Restored, Tracks
from agent.signals.reading import readings_of
from agent.signals.series import Due, Pace
from agent.signals.tenants import TenantsTracker
from agent.signals.types import EngineSignals, NodeSignals, Reading, TenantSignals
from agent.state import AgentState
from agent.subject import Subject
from engine_hooks.detail import Detail

KEEP_SECONDS = 900.0  # an engine that is not seen for so long is forgotten, what is usual for it is not

Key = tuple[str, bool]
OnError = Callable[[str, Exception], None]
T = TypeVar("T")

SIGNALS = "signals"
ALLOCATORS, GPUS, HOST = f"{SIGNALS}:allocators", f"{SIGNALS}:gpus", f"{SIGNALS}:host"
_PARTS = {"gpu": (GPUS, ALLOCATORS), "process": (ALLOCATORS,), "host": (HOST, ALLOCATORS)}


def part_of(engine: str) -> str:
    """Return what the signals of one engine are called where they fail."""
    return f"{SIGNALS}/{engine}"


def parts_of(subject: Subject) -> tuple[str, ...]:
    """Return the parts without which nobody can judge ``subject``, by what they are called where they fail."""
    return (*_PARTS.get(subject.scope, ()), *((part_of(subject.engine),) if subject.engine else ()))


class NodeTracker:
    """Keeps what signals need of the past, bounded; forgets what is gone. ``baselines``: what an agent before this one
    had learned; ``tracks``: what its slow estimates rested on. ``on_error`` gets what fails, by name (:func:`part_of`),
    and the rest goes on; without it the first failure is raised. ``readings``: of the state that was taken last, by
    engine and whether they are of its hooks.
    """

    def __init__(
        self,
        policy: Policy,
        baselines: Baselines | None = None,
        tracks: Tracks | None = None,
        on_error: OnError | None = None,
    ) -> None:
        self._policy = policy
        self._on_error = on_error
        self._pace = Pace()
        self._known = usable(baselines)
        self._engines: dict[Key, EngineTracker] = {}
        self._tenants: dict[Key, TenantsTracker] = {}
        self._restored = Restored(tracks)
        self._gpus = GpusTracker(policy, self._restored)
        self._allocators = AllocatorsTracker(self._restored)
        self._hosts = HostsTracker(self._restored)
        self._hour = Due(3600.0, 3600.0)
        self._signals = NodeSignals()
        self._began = 0.0
        self.readings: dict[Key, Reading] = {}

    def adopt(self, policy: Policy) -> None:
        """Go by another policy from now on."""
        self._policy = policy
        self._gpus.adopt(policy)
        for tracker in self._engines.values():
            tracker.adopt(policy)

    def take(self, state: AgentState) -> NodeSignals:
        """Return the signals at ``state``; one that is not later than the last, by its monotonic time, is ignored."""
        now = state.monotonic
        told = [
            ((reading.engine, reading.hooked), reading, detail)
            for reading, detail in readings_of(state, self._on_error and self._unread)
        ]
        self.readings = {key: reading for key, reading, _ in told}
        step = self._pace.take(now)
        if step == "back":
            return self._signals
        gap = step == "gap"
        if step == "first":
            self._began = now
        # What did not come back in a quarter of an hour won't; and nothing is of a time to come.
        if now - self._began > KEEP_SECONDS or now < self._restored.monotonic:
            self._restored.clear()
        engines: list[EngineSignals] = []
        tenants: list[TenantSignals] = []
        for key, reading, detail in told:
            found = self._part(part_of(reading.engine), None, self._of_engine, now, state.at, key, reading, detail)
            if found is not None:
                engines.append(found[0])
                tenants += found[1]
        self._forget(now)
        if self._hour.now(now) and step != "first":
            grown_old(self._known.engines, {name for name, _ in self._engines})
        self._signals = NodeSignals(
            engines=tuple(engines),
            tenants=tuple(tenants),
            allocators=self._part(ALLOCATORS, (), self._allocators.take, now, state, gap),
            gpus=self._part(GPUS, (), self._gpus.take, now, state, gap),
            host=self._part(HOST, (), self._hosts.take, now, state),
        )
        return self._signals

    def _of_engine(
        self, now: float, at: float, key: Key, reading: Reading, detail: Detail | None
    ) -> tuple[EngineSignals, tuple[TenantSignals, ...]]:
        signals = self._tracker(key).take(now, at, reading, detail)
        return signals, self._tenants[key].take(now, reading, detail, signals.settled and not signals.harm)

    def _part(self, name: str, instead: T, make: Callable[..., T], *given: Any) -> T:
        """Return what ``make`` makes; where that fails it is told by ``name``, and is ``instead``."""
        try:
            return make(*given)
        except Exception as error:
            if self._on_error is None:
                raise
            self._on_error(name, error)
            return instead

    def _unread(self, engine: str, error: Exception) -> None:
        if self._on_error is not None:
            self._on_error(part_of(engine), error)

    def baselines(self) -> Baselines:
        """Return a copy of what has been learned."""
        return usable(self._known)

    def tracks(self) -> Tracks:
        """Return what the slow estimates rest on, as of the last state."""
        kept = chain(
            *(each.kept() for each in self._engines.values()),
            self._gpus.kept(),
            self._allocators.kept(),
            self._hosts.kept(),
            self._restored.left(),
        )
        return Tracks(monotonic=self._pace.last or 0.0, tracks=dict(islice(kept, MOST_TRACKS)))

    def _tracker(self, key: Key) -> EngineTracker:
        tracker = self._engines.get(key)
        if tracker is None:
            name, hooked = key
            known = self._known.engines
            if name not in known and len(known) >= MOST_ENGINES:
                del known[next(iter(known))]
            tracker = EngineTracker(name, hooked, self._policy, known.setdefault(name, {}), self._restored)
            self._engines[key] = tracker
            self._tenants[key] = TenantsTracker(name, tracker.learning)
        return tracker

    def _forget(self, now: float) -> None:
        for key, tracker in list(self._engines.items()):
            if tracker.last is not None and now - tracker.last > KEEP_SECONDS:
                del self._engines[key], self._tenants[key]
