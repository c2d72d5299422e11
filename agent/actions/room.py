"""Engines whose KV pool could be smaller: nothing is wrong there, so no verdict says so. Remembers for how long.

What it says has the form of a verdict, and goes the way of one: rules, gates, journal. Nobody is told of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from agent.actions.executor import MINE
from agent.actions.measure import signals_of
from agent.actions.memory import IDLE, NEIGHBOUR, OFFERS
from agent.actions.spare import cached_of, disturbed, longest_of, need_of, pressed, short_beside, whole_of
from agent.actions.types import Action
from agent.policy.types import Policy
from agent.state import AgentState, EngineState, Judgement, Verdict
from agent.subject import Subject
from agent.units import human_seconds

LEVER = "compact"


@dataclass(slots=True)
class _Below:
    """For how long the need was below a line without a break, since when (monotonic and Unix seconds), and its most."""

    since: float | None = None
    at: float = 0.0
    seconds: float = 0.0
    most: int = 0

    def take(self, state: AgentState, need: int | None) -> None:
        """Look at the need; None: it is not below, or nobody knows."""
        if need is None:
            self.since, self.seconds, self.most = None, 0.0, 0
            return
        if self.since is None:
            self.since, self.at = state.monotonic, state.at
        self.seconds = state.monotonic - self.since
        self.most = max(self.most, need)


@dataclass(slots=True)
class _Pool:
    instance: str
    idle: _Below = field(default_factory=_Below)
    spare: _Below = field(default_factory=_Below)
    above: int = 0  # looks in a row at which a smaller pool was needed whole


class Room:
    """Looks at each state; orders nothing."""

    def __init__(self) -> None:
        self._pools: dict[str, _Pool] = {}

    def take(self, judgement: Judgement, state: AgentState, policy: Policy, recent: Sequence[Action]) -> Judgement:
        """Return the judgement with what could be smaller beside what is wrong. ``recent``: all known actions."""
        known = {each.engine: each for each in state.engines}
        self._pools = {name: pool for name, pool in self._pools.items() if name in known}
        found = [each for engine in state.engines for each in self._of(engine, state, policy, recent)]
        return replace(judgement, verdicts=(*judgement.verdicts, *found)) if found else judgement

    def back(self, in_force: Sequence[Action], state: AgentState, policy: Policy) -> Iterator[tuple[Action, str]]:
        """Yield the agent's own compactions that are to end, with the reason."""
        engines = {each.engine: each for each in state.engines}
        for action in in_force:
            engine = engines.get(action.plan.subject.engine)
            if action.by == MINE and action.plan.kind in OFFERS and engine is not None:
                why = self._needed(action, engine, state, policy)
                if why:
                    yield action, why

    def _of(
        self, engine: EngineState, state: AgentState, policy: Policy, recent: Sequence[Action]
    ) -> Iterator[Verdict]:
        here = [each for each in recent if each.plan.subject.engine == engine.engine]
        own = [each for each in here if each.plan.lever == LEVER]
        in_force = [each for each in here if each.phase == "in_force"]
        live = next((each for each in in_force if each.plan.lever == LEVER), None)
        pool, signals, limits = self._pool(engine), signals_of(state, engine.engine), policy.compaction
        need = None
        # What throttles an engine makes its need look smaller than it is.
        if not in_force and signals is not None and engine.pool is not None and not disturbed(state, engine):
            need = need_of(engine, signals, limits)
            need = None if need is None else need + cached_of(engine.pool, signals, limits)
        pool.idle.take(state, _below(need, limits.idle_ratio * whole_of(engine)))
        pool.spare.take(state, _below(need, limits.neighbour_ratio * whole_of(engine)))
        if live is not None and live.by == MINE and live.plan.kind in OFFERS:
            # What it was made for stands until it is taken back.
            yield _verdict(live.plan.kind, engine, live.at, live.plan.sentence, live.plan.evidence)
        rests = all(state.at - each.changed >= limits.cooldown_seconds for each in own)
        if need is None or engine.waiting or not rests or any(_frees_nothing(each, engine) for each in own):
            return
        beside = short_beside(state, engine) if pool.spare.seconds >= limits.neighbour_seconds else ""
        if beside:
            yield from _offer(NEIGHBOUR, engine, pool.spare, policy, f"short beside it: {beside}")
        elif pool.idle.seconds >= limits.idle_seconds:
            yield from _offer(IDLE, engine, pool.idle, policy, "its pool is too big")

    def _needed(self, action: Action, engine: EngineState, state: AgentState, policy: Policy) -> str:
        """Why a smaller pool is to be whole again; empty where it may stay."""
        pool, signals, limits = self._pool(engine), signals_of(state, engine.engine), policy.compaction
        if _frees_nothing(action, engine):
            return "nothing was given back: this platform can't"
        if why := pressed(state, engine):
            return f"its pool is needed: {why}"
        need = None if signals is None else need_of(engine, signals, limits)
        has = action.plan.arguments.get("to_blocks")
        over = need is not None and isinstance(has, int) and need > limits.grow_ratio * has
        pool.above = pool.above + 1 if over else 0
        if pool.above < policy.actions.breaches:
            return ""
        return f"its pool is needed: {need} blocks, over {limits.grow_ratio:.0%} of what it has"

    def _pool(self, engine: EngineState) -> _Pool:
        pool = self._pools.get(engine.engine)
        if pool is None or pool.instance != engine.instance:
            pool = self._pools[engine.engine] = _Pool(engine.instance)
        return pool


def _below(need: int | None, line: float) -> int | None:
    return need if need is not None and need < line else None


def _frees_nothing(action: Action, engine: EngineState) -> bool:
    """Whether this very process has said that its pages can't be given back."""
    told = [each.effect["release_bytes"] for each in action.outcomes if "release_bytes" in each.effect]
    return engine.instance in action.plan.targets and bool(told) and not any(told)


def _offer(kind: str, engine: EngineState, below: _Below, policy: Policy, why: str) -> Iterator[Verdict]:
    """What could be smaller, and how small; nothing where too little would come free."""
    limits, whole, pool = policy.compaction, whole_of(engine), engine.pool
    if pool is None:
        return
    target = max(int(below.most / limits.fill_ratio), int(limits.floor_ratio * whole), longest_of(pool), 1)
    if pool.capacity - target < limits.least_ratio * whole:
        return
    sentence = (
        f"For {human_seconds(below.seconds)} no more than {below.most} of {whole} KV blocks of {engine.engine} were "
        f"needed, with the growth that is forecast; {why}."
    )
    evidence = {
        "needed_blocks": float(below.most),
        "capacity_blocks": float(pool.capacity),
        "target_blocks": float(target),
        "quiet_seconds": below.seconds,
    }
    yield _verdict(kind, engine, below.at, sentence, evidence)


def _verdict(kind: str, engine: EngineState, since: float, sentence: str, evidence: dict[str, float]) -> Verdict:
    return Verdict(
        kind=kind,
        phase="confirmed",
        since=since,
        changed=since,
        sentence=sentence,
        remedy="A smaller pool serves it as well.",
        evidence=evidence,
        subject=Subject(scope="engine", engine=engine.engine),
        tier="warn",
    )
