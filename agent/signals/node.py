"""All signals of a node: folded from one state after the other."""

from __future__ import annotations

from agent.policy.types import Policy
from agent.signals.allocators import AllocatorsTracker
from agent.signals.baseline import MOST_ENGINES, Baselines, usable
from agent.signals.engine import EngineTracker
from agent.signals.gpus import GpusTracker
from agent.signals.hosts import HostsTracker
from agent.signals.reading import readings_of
from agent.signals.series import Pace
from agent.signals.tenants import TenantsTracker
from agent.signals.types import EngineSignals, NodeSignals, Reading, TenantSignals
from agent.state import AgentState

KEEP_SECONDS = 900.0  # an engine that is not seen for so long is forgotten, what is usual for it is not

Key = tuple[str, bool]


class NodeTracker:
    """Keeps what signals need of the past, bounded; forgets what is gone. ``baselines``: what an agent before this one
    had learned. ``readings``: of the state that was taken last, by engine and whether they are of its hooks.
    """

    def __init__(self, policy: Policy, baselines: Baselines | None = None) -> None:
        self._policy = policy
        self._pace = Pace()
        self._known = usable(baselines)
        self._engines: dict[Key, EngineTracker] = {}
        self._tenants: dict[Key, TenantsTracker] = {}
        self._gpus = GpusTracker(policy)
        self._allocators = AllocatorsTracker()
        self._hosts = HostsTracker()
        self._signals = NodeSignals()
        self.readings: dict[Key, Reading] = {}

    def take(self, state: AgentState) -> NodeSignals:
        """Return the signals at ``state``; one that is not later than the last, by its monotonic time, is ignored."""
        now = state.monotonic
        told = [((reading.engine, reading.hooked), reading, detail) for reading, detail in readings_of(state)]
        self.readings = {key: reading for key, reading, _ in told}
        step = self._pace.take(now)
        if step == "back":
            return self._signals
        gap = step == "gap"
        engines: list[EngineSignals] = []
        tenants: list[TenantSignals] = []
        for key, reading, detail in told:
            signals = self._tracker(key).take(now, state.at, reading, detail)
            engines.append(signals)
            calm = signals.settled and not signals.harm
            tenants += self._tenants[key].take(now, reading, detail, calm)
        self._forget(now)
        self._signals = NodeSignals(
            engines=tuple(engines),
            tenants=tuple(tenants),
            allocators=self._allocators.take(now, state, gap),
            gpus=self._gpus.take(now, state, gap),
            host=self._hosts.take(now, state),
        )
        return self._signals

    def baselines(self) -> Baselines:
        """Return a copy of what has been learned."""
        return usable(self._known)

    def _tracker(self, key: Key) -> EngineTracker:
        tracker = self._engines.get(key)
        if tracker is None:
            name, hooked = key
            known = self._known.engines
            if name not in known and len(known) >= MOST_ENGINES:
                del known[next(iter(known))]
            tracker = EngineTracker(name, hooked, self._policy, known.setdefault(name, {}))
            self._engines[key] = tracker
            self._tenants[key] = TenantsTracker(name, tracker.learning)
        return tracker

    def _forget(self, now: float) -> None:
        for key, tracker in list(self._engines.items()):
            if tracker.last is not None and now - tracker.last > KEEP_SECONDS:
                del self._engines[key], self._tenants[key]
