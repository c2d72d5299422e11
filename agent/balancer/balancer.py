"""All engines' weights on this node: follows each, asks the coordinator, and says what load balancers are told."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from agent.balancer.config import BalancerConfig
from agent.balancer.evidence import Evidence, evidence_of
from agent.balancer.grants import Grants
from agent.balancer.marks import Mark, Marks
from agent.balancer.state import BalancerMode, BalancerState, EngineWeight, Weight
from agent.balancer.weights import Look, Pace, Track, advance, fresh
from agent.policy.actions import Lever
from agent.policy.types import Policy
from agent.signals.types import EngineSignals
from agent.state import AgentState, Judgement

logger = logging.getLogger("kvtide.balancer")

MOST_ENGINES = 256
LEVER: Lever = "weight"
MODES: tuple[BalancerMode, ...] = ("observe", "dry-run", "enforce")  # the weakest first
OBSERVE = "observe: weights are not moved (balancer.mode)"
NOT_SEEN = "not seen yet"

Stops = Callable[[str], str]
Moved = Callable[[str, Weight, Weight], None]  # the engine, what was told before, what is told now


class _Seen(NamedTuple):
    """What one look says of an engine. ``host``: also its pod's name; ``present``: it is heard of now."""

    signals: EngineSignals | None = None
    instance: str = ""
    host: str = ""

    @property
    def present(self) -> bool:
        return bool(self.instance)


class Balancer:
    """``look`` takes each judged state; ``told`` is asked by load balancers. All on the agent's loop. At the end:
    ``let_go``, then the agent-check's ``close``, then ``close``.

    ``policy`` may be replaced at any time: its thresholds of growth count, and what mode it gives the lever ``weight``
    (of all or of one engine) can only weaken that of the settings. ``stops`` says why nothing may be done about an
    engine now, empty where it may. ``moved`` hears of each change of what is told. ``clock`` is the monotonic
    one that states are made with.
    """

    def __init__(
        self,
        config: BalancerConfig,
        policy: Policy,
        grants: Grants,
        *,
        stops: Stops | None = None,
        moved: Moved | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self._config, self._grants, self._clock = config, grants, clock
        self._stops, self._moved = stops, moved
        self._pace = pace or Pace()
        self._named = frozenset(engine.name for engine in config.engines)
        self._marks = Marks(config.marks_file)
        self._tracks: dict[str, Track] = {}
        self._instances: dict[str, str] = {}
        self._told: dict[str, Weight] = {}
        self._hosts: dict[str, str] = {}
        self._looked: float | None = None
        self._gone = False
        self._state = BalancerState(mode=config.mode, coordinator=grants.name)

    @property
    def state(self) -> BalancerState:
        """As of the last look."""
        return self._state

    def told(self, engine: str) -> Weight | None:
        """Return what a load balancer is told now, None for an engine that is neither here nor in the settings."""
        weight = self._told.get(engine)
        if weight is None:
            return Weight(since=0.0, why=NOT_SEEN) if engine in self._named else None
        if self._looked is None or self._clock() - self._looked > self._pace.hold:
            return Weight(since=weight.since, why="the agent has not judged it for too long")
        return weight

    def start(self) -> None:
        """Begin to ask the coordinator and to tell gates, on the running loop; where neither is wanted, nothing."""
        if self._config.mode == "enforce" or self._config.kubernetes.readiness_gate:
            self._grants.start()

    async def close(self) -> None:
        """Give grants back, in two seconds at most."""
        await self._grants.close()

    def let_go(self) -> None:
        """The agent ends: from now on all engines get all their share, but those that a person holds."""
        self._gone = True
        self._told = {
            engine: weight if weight.step in ("full", "person") else Weight(since=weight.since, why="the agent ends")
            for engine, weight in self._told.items()
        }
        self._grants.want((), (), self._pods())

    def look(self, state: AgentState, judgement: Judgement | None) -> None:
        """Take what was seen and judged a moment ago."""
        if self._gone:
            return
        self._marks.refresh()
        seen = _seen(state, judgement)
        weights, wanted, hosts = [], [], {}
        for engine in sorted({*seen, *self._tracks, *self._named})[:MOST_ENGINES]:
            found = seen.get(engine, _Seen())
            mark = self._marks.of(engine)
            stop = _stopped(state) or (self._stops(engine) if self._stops is not None else "")
            track = self._followed(engine, found, state, judgement, held=mark is not None or bool(stop))
            if engine not in seen and engine not in self._named and track.weight.step == "full":
                self._forget(engine)
                continue
            self._tracks[engine] = track
            if track.wants and self._mode(engine) == "enforce":
                wanted.append(engine)
            told = self._answer(engine, track, mark, stop, state.at)
            self._tell(engine, told)
            if found.host:
                hosts[engine] = found.host
            weights.append(EngineWeight(engine=engine, told=told, found=track.weight))
        self._hosts, self._looked = hosts, self._clock()  # one that fails half-way was no look
        self._grants.want(
            present=sorted(name for name, found in seen.items() if found.present and self._mode(name) == "enforce"),
            wanted=wanted,
            pods=self._pods(),
        )
        self._state = BalancerState(
            mode=self._config.mode,
            coordinator=self._grants.name,
            engines=tuple(weights),
            fleet=self._grants.fleet,
            ejected=self._grants.ejected,
            refused_total=self._grants.refused_total,
            failed_total=self._grants.failed_total,
            problem=self._marks.problem or self._grants.problem,
        )

    def _followed(
        self, engine: str, found: _Seen, state: AgentState, judgement: Judgement | None, *, held: bool
    ) -> Track:
        """Return the engine's track after this look. ``held``: somebody else says what it gets, so nothing is found."""
        now, at = state.monotonic, state.at
        track, before = self._tracks.get(engine), self._instances.get(engine)
        if found.instance:
            self._instances[engine] = found.instance
        mode = self._mode(engine)
        if mode == "observe":
            return track if track is not None and track.weight.why == OBSERVE else fresh(now, at, OBSERVE)
        if track is None or (before is not None and found.instance not in ("", before)):
            track = fresh(now, at, "it has just started" if before else "")
        if held:
            full = track if track.weight.step == "full" else fresh(now, at)
            return replace(full, restored=now, breach=None, severe=None, wants=False)
        granted = mode == "dry-run" or self._grants.holds(engine)
        refusal = "" if granted else self._grants.refusal(engine)
        evidence = self._evidence(engine, found, judgement)
        return advance(track, Look(evidence=evidence, granted=granted, refusal=refusal, now=now, at=at), self._pace)

    def _pods(self) -> dict[str, Weight]:
        """Return what each pod's gate is to say: a pod of several engines serves as long as one of them does."""
        pods: dict[str, Weight] = {}
        for engine, host in self._hosts.items():
            told = self._told[engine]
            if host not in pods or told.percent > pods[host].percent:
                pods[host] = told
        return pods

    def _mode(self, engine: str) -> BalancerMode:
        actions = self.policy.actions
        named = {**actions.levers, **actions.engines.get(engine, {})}.get(LEVER)
        return min(self._config.mode, named or self._config.mode, key=MODES.index)

    def _evidence(self, engine: str, found: _Seen, judgement: Judgement | None) -> Evidence:
        verdicts = judgement.verdicts if judgement is not None else ()
        own = [each for each in verdicts if each.subject.scope == "engine" and each.subject.engine == engine]
        return evidence_of(found.signals, own, self.policy.growth)

    def _answer(self, engine: str, track: Track, mark: Mark | None, stop: str, at: float) -> Weight:
        before = self._told.get(engine)
        if mark is not None:
            why = f"a person holds it: {mark}"
            return Weight(
                percent=100 if mark == "up" else 0,
                mode=mark,
                since=before.since if before is not None and before.why == why else at,
                why=why,
                step="person",
            )
        if track.weight.step == "full":
            return track.weight if not stop else Weight(since=track.weight.since, why=stop)
        if self._mode(engine) == "dry-run":
            return Weight(since=track.weight.since, why=f"dry-run: {track.weight.percent} %, {track.weight.why}")
        return track.weight

    def _tell(self, engine: str, weight: Weight) -> None:
        before = self._told.get(engine)
        self._told[engine] = weight
        if before is None or (before.percent, before.mode) == (weight.percent, weight.mode):
            return
        logger.warning("%s: weight %d %%, %s: %s", engine, weight.percent, weight.mode, weight.why or weight.step)
        if self._moved is not None:
            self._moved(engine, before, weight)

    def _forget(self, engine: str) -> None:
        for kept in (self._tracks, self._instances, self._told):
            kept.pop(engine, None)


def _seen(state: AgentState, judgement: Judgement | None) -> dict[str, _Seen]:
    """Return the engines, by label. Of one that is silent nothing is taken: what is known of it is of before."""
    seen = {
        engine.engine: _Seen(instance=engine.instance if engine.phase == "live" else "", host=engine.host)
        for engine in state.engines
    }
    hooked = frozenset(seen)
    for signals in judgement.signals.engines if judgement is not None else ():
        name = signals.engine
        if signals.hooked and name in hooked and seen[name].present:
            seen[name] = seen[name]._replace(signals=signals)
        elif not signals.hooked and name not in hooked:  # its page says less than its hooks did
            seen[name] = _Seen(signals=signals, instance=signals.instance)
    return seen


def _stopped(state: AgentState) -> str:
    """Return why the agent may do nothing at all now, empty where it may."""
    actions = state.actions
    if actions is None:
        return ""
    if actions.breaker.open:
        return f"the breaker is open: {actions.breaker.reason}"
    return actions.problem
