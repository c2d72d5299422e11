"""All engines' weights on this node: follows each, asks the coordinator, and says what load balancers are told."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from agent.actions.types import Refusal
from agent.balancer.config import BalancerConfig
from agent.balancer.evidence import Evidence, evidence_of
from agent.balancer.grants import Grants
from agent.balancer.kept import Keeper, restored
from agent.balancer.marks import Marks, PersonMark
from agent.balancer.moves import AGENT, Moves
from agent.balancer.seen import Seen, seen_in
from agent.balancer.state import BalancerMode, BalancerState, EngineWeight, Weight
from agent.balancer.telling import Telling
from agent.balancer.weights import HALF, NOT_ISOLATED, Look, Pace, Track, advance, fresh
from agent.policy.actions import Lever
from agent.policy.types import Policy
from agent.state import AgentState, Judgement

MOST_ENGINES = 256
LEVER: Lever = "weight"
MODES: tuple[BalancerMode, ...] = ("observe", "dry-run", "enforce")  # the weakest first
OBSERVE = "observe: weights are not moved (balancer.mode)"
NOT_SEEN = "not seen yet"

AGAIN_SECONDS = 10.0  # in which the coordinator may grant again what it had granted an agent before this one
ASKED_AGAIN = "isolated by an agent before this one; the coordinator is being asked again"

Stops = Callable[[str], Refusal | None]
Marked = Callable[[str], PersonMark | None]


class Balancer:
    """``look`` takes each judged state; ``told`` is asked by load balancers. All on the agent's loop. At the end:
    ``let_go``, then the agent-check's ``close``, then ``close``.

    ``policy`` may be replaced at any time: its thresholds of growth count, and what mode it gives the lever ``weight``
    (of all or of one engine) can only weaken that of the settings. ``stops`` says why nothing may be done about an
    engine now, None where it may. ``moves`` writes down each change of what is told before it is. ``marked``: how a
    person holds an engine, by a command. ``clock`` is the monotonic one that states are made with.
    """

    def __init__(
        self,
        config: BalancerConfig,
        policy: Policy,
        grants: Grants,
        *,
        stops: Stops | None = None,
        moves: Moves | None = None,
        marked: Marked | None = None,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.policy = policy
        self._config, self._grants, self._clock = config, grants, clock
        self._stops, self._moves = stops, moves
        self._pace = pace or Pace()
        self._keeper = Keeper(self._pace)
        self._restored = moves is None
        self._asked_until: dict[str, float] = {}  # of what was isolated before this agent: not judged until then
        self._drains: dict[str, str] = {}  # why, of what is about to be restarted
        self._named = frozenset(engine.name for engine in config.engines)
        self._marks = Marks(config.marks_file, marked)
        self._tracks: dict[str, Track] = {}
        self._instances: dict[str, str] = {}
        self._telling = Telling(moves)
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
        weight = self._telling.told.get(engine)
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
        self._telling.let_go()
        self._grants.want((), (), self._pods())

    def look(self, state: AgentState, judgement: Judgement | None) -> None:
        """Take what was seen and judged a moment ago."""
        if self._gone:
            return
        self._marks.refresh()
        seen = seen_in(state, judgement)
        self._restore(state)
        weights, wanted, hosts = [], [], {}
        for engine in sorted({*seen, *self._tracks, *self._named})[:MOST_ENGINES]:
            found = seen.get(engine, Seen())
            mark = self._marks.of(engine)
            stop = _stopped(state) or (self._stops(engine) if self._stops is not None else None)
            evidence = self._evidence(engine, found, judgement)
            held = mark is not None or stop is not None or engine in self._drains
            track = self._followed(engine, found, state, evidence, held=held)
            if engine not in seen and engine not in self._named and track.weight.step == "full":
                self._forget(engine)
                continue
            self._tracks[engine] = track
            if (track.wants or (engine in self._drains and mark is None)) and self._mode(engine) == "enforce":
                wanted.append(engine)
            self._telling.tell(engine, self._answer(engine, track, mark, stop, state.at), mark.by if mark else AGENT)
            if self._moves is not None:
                self._moves.refuse(engine, self._refusal(engine, track, evidence, mark, stop))
            if found.host:
                hosts[engine] = found.host
            weights.append(EngineWeight(engine=engine, told=self._telling.told[engine], found=track.weight))
        self._hosts, self._looked = hosts, self._clock()  # one that fails half-way was no look
        self._grants.want(
            present=sorted(name for name, found in seen.items() if found.present and self._mode(name) == "enforce"),
            wanted=wanted,
            pods=self._pods(),
        )
        self._keep(state)
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

    # -- what is about to be restarted ------------------------------------------------------------------------------

    def drain(self, engine: str, why: str) -> bool:
        """Take an engine out, as far as the coordinator grants it; return whether its weight can be moved at all."""
        if engine not in self._telling.told or self._mode(engine) != "enforce":
            return False
        self._drains[engine] = why
        return True

    def undrain(self, engine: str) -> None:
        """Let it be judged again."""
        self._drains.pop(engine, None)

    def drain_refused(self, engine: str) -> str:
        """Return why the coordinator does not let it go below 50 %; empty while it does, is being asked, or is none."""
        if self._config.coordinator == "none" or self._grants.holds(engine):
            return ""
        return self._grants.refusal(engine)

    # -- one look ---------------------------------------------------------------------------------------------------

    def _followed(self, engine: str, found: Seen, state: AgentState, evidence: Evidence, *, held: bool) -> Track:
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
        if engine in self._asked_until:
            if not (granted or refusal) and now < self._asked_until[engine]:
                return replace(track, wants=True)
            del self._asked_until[engine]
        return advance(track, Look(evidence=evidence, granted=granted, refusal=refusal, now=now, at=at), self._pace)

    def _pods(self) -> dict[str, Weight]:
        """Return what each pod's gate is to say: a pod of several engines serves as long as one of them does."""
        pods: dict[str, Weight] = {}
        for engine, host in self._hosts.items():
            told = self._telling.told[engine]
            if host not in pods or told.percent > pods[host].percent:
                pods[host] = told
        return pods

    def _mode(self, engine: str) -> BalancerMode:
        actions = self.policy.actions
        named = {**actions.levers, **actions.engines.get(engine, {})}.get(LEVER)
        return min(self._config.mode, named or self._config.mode, key=MODES.index)

    def _evidence(self, engine: str, found: Seen, judgement: Judgement | None) -> Evidence:
        verdicts = judgement.verdicts if judgement is not None else ()
        own = [each for each in verdicts if each.subject.scope == "engine" and each.subject.engine == engine]
        return evidence_of(found.signals, own, self.policy.growth)

    def _answer(self, engine: str, track: Track, mark: PersonMark | None, stop: Refusal | None, at: float) -> Weight:
        before = self._telling.told.get(engine)
        if mark is not None:
            why = f"{mark.by} holds it: {mark.mark}{mark.why and f' ({mark.why})'}"
            return Weight(
                percent=100 if mark.mark == "up" else 0,
                mode=mark.mark,
                since=before.since if before is not None and before.why == why else at,
                why=why,
                step="person",
            )
        if engine in self._drains and stop is None:
            return self._drained(self._drains[engine], granted=self._grants.holds(engine), before=before, at=at)
        if engine in self._asked_until and not self._grants.holds(engine):
            return Weight(percent=HALF, since=track.weight.since, why=ASKED_AGAIN, step="halved")
        if track.weight.step == "full":
            return track.weight if stop is None else Weight(since=track.weight.since, why=stop.text)
        if self._mode(engine) == "dry-run":
            return Weight(since=track.weight.since, why=f"dry-run: {track.weight.percent} %, {track.weight.why}")
        return track.weight

    @staticmethod
    def _drained(why: str, *, granted: bool, before: Weight | None, at: float) -> Weight:
        since = before.since if before is not None and before.why == why else at
        if granted:
            return Weight(percent=0, mode="drain", since=since, why=why, step="isolated")
        return Weight(percent=HALF, since=since, why=why, step="halved")

    def _refusal(
        self, engine: str, track: Track, evidence: Evidence, mark: PersonMark | None, stop: Refusal | None
    ) -> Refusal | None:
        """Return why an engine does not get less although its numbers ask for it."""
        if evidence.level not in ("halve", "isolate"):
            return None
        if mark is not None:
            return None if mark.mark != "up" else Refusal(code="yield", text=f"{mark.by} holds it up; {evidence.why}")
        if stop is not None:
            return Refusal(code=stop.code, text=f"{stop.text}; {evidence.why}")
        mode = self._mode(engine)
        if mode != "enforce":
            return Refusal(code="observe", text=f"{mode}: weights are not moved; {evidence.why}")
        if NOT_ISOLATED in track.weight.why:
            return Refusal(code="share", text=track.weight.why)
        return None

    # -- over a restart of the agent --------------------------------------------------------------------------------

    def _restore(self, state: AgentState) -> None:
        """Go on where an agent before this one was, once that is known."""
        if self._restored or self._moves is None or (body := self._moves.kept()) is None:
            return
        self._restored = True
        for engine, kept in restored(body, state.monotonic, state.at).items():
            if self._mode(engine) != "enforce" or self._instances.get(engine, kept.instance) != kept.instance:
                continue
            self._tracks[engine], self._instances[engine] = kept.track, kept.instance
            if kept.track.weight.percent < HALF:
                self._asked_until[engine] = state.monotonic + AGAIN_SECONDS

    def _keep(self, state: AgentState) -> None:
        if self._moves is None or not self._restored:
            return
        body = self._keeper.due(self._tracks, self._instances, state.monotonic, state.at)
        if body is not None:
            self._moves.keep(body)

    def _forget(self, engine: str) -> None:
        for kept in (self._tracks, self._instances, self._asked_until):
            kept.pop(engine, None)
        self._telling.forget(engine)
        if self._moves is not None:
            self._moves.refuse(engine, None)


def _stopped(state: AgentState) -> Refusal | None:
    """Return why the agent may do nothing at all now, None where it may."""
    actions = state.actions
    if actions is None:
        return None
    if actions.breaker.open:
        return Refusal(code="breaker", text=f"the breaker is open: {actions.breaker.reason}")
    return Refusal(code="switched_off", text=actions.problem) if actions.problem else None
