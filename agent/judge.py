"""The judge: states in, judgements out. The same for the live agent, replay and backtest; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Iterator

from agent.policy.types import DEFAULT, Policy
from agent.retained import peers_of
from agent.signals.node import NodeTracker
from agent.signals.reading import of_hooks, of_page
from agent.signals.score import scores
from agent.signals.types import NodeSignals
from agent.state import AgentState, Judgement, Subject, Verdict
from agent.verdicts import DETECTORS, NODE_DETECTORS
from agent.verdicts.base import Detector, Facts, Finding, NodeDetector, Track, View, advance, ended, verdict_of
from agent.verdicts.seen import Seen

ENGINE_GONE = "engine gone"
OUT_OF_SIGHT = "out of sight"
HELD_SECONDS = 600.0  # a verdict on something that can't be seen any more stays for so long

_Key = tuple[str, Subject]


class Judge:
    """Folds states in the order of their monotonic times; gaps between them are no evidence of anything."""

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self.policy = policy
        self._tracker = NodeTracker(policy)
        self._tracks: dict[_Key, Track] = {}
        self._instances: dict[str, str] = {}
        detectors: tuple[Detector | NodeDetector, ...] = (*DETECTORS, *NODE_DETECTORS)
        self._order = {each.kind: number for number, each in enumerate(detectors)}
        self._times = {each.kind: (each.confirm_seconds, each.clear_seconds) for each in detectors}
        self._of_absence = {each.kind for each in NODE_DETECTORS if each.of_absence}

    def look(self, state: AgentState) -> Judgement:
        """Return what is made of ``state`` and of all states before it."""
        now = state.monotonic
        self._close_gone(state, now)
        signals = self._tracker.take(state)
        findings = dict(self._findings(state, signals))
        seen = Seen(state)
        for key in {*findings, *self._tracks}:
            kind, subject = key
            track = self._tracks.get(key)
            if key in findings or kind in self._of_absence or (track and track.phase == "resolved"):
                track = advance(track, findings.get(key), now, *self._times[kind])
            elif seen.has(subject):
                track = advance(track, None, now, *self._times[kind])
            elif track is not None and now - track.seen > HELD_SECONDS:
                track = ended(track, now, OUT_OF_SIGHT)
            if track is None:
                self._tracks.pop(key, None)
            else:
                self._tracks[key] = track
        verdicts = self._verdicts(now, state.at)
        return Judgement(
            at=state.at,
            signals=signals,
            verdicts=verdicts,
            scores=scores(state, signals, verdicts, self.policy),
        )

    def _close_gone(self, state: AgentState, now: float) -> None:
        """End the verdicts of engines that have ended or restarted: what a dead process leaked is no more."""
        instances = {engine.engine: engine.instance for engine in state.engines}
        for key, track in list(self._tracks.items()):
            engine = key[1].engine
            before = self._instances.get(engine)
            if before is not None and instances.get(engine) != before and key[1].scope in ("engine", "tenant"):
                closed = ended(track, now, ENGINE_GONE)
                if closed is None:
                    del self._tracks[key]
                else:
                    self._tracks[key] = closed
        self._instances = instances

    def _findings(self, state: AgentState, signals: NodeSignals) -> Iterator[tuple[_Key, Finding]]:
        for name, facts in self._facts(state, signals):
            subject = Subject(scope="engine", engine=name)
            for detector in DETECTORS:
                finding = detector.judge(facts)
                if finding is not None:
                    yield (detector.kind, subject), finding
        view = View(state, signals, self.policy)
        for node_detector in NODE_DETECTORS:
            for subject, finding in node_detector.judge(view):
                yield (node_detector.kind, subject), finding

    def _facts(self, state: AgentState, signals: NodeSignals) -> Iterator[tuple[str, Facts]]:
        known = {(each.engine, each.hooked): each for each in signals.engines}
        peers = peers_of((engine.engine, engine.detail) for engine in state.engines)
        for engine in state.engines:
            if engine.phase == "live":
                yield (
                    engine.engine,
                    Facts(
                        pool=engine.pool,
                        detail=engine.detail,
                        running=engine.running or 0,
                        waiting=engine.waiting or 0,
                        peers=peers,
                        engine=engine,
                        reading=of_hooks(engine),
                        signals=known.get((engine.engine, True)),
                        tenants=tuple(each for each in signals.tenants if each.engine == engine.engine),
                        policy=self.policy,
                    ),
                )
        for page in state.scrape.engines if state.scrape else ():
            reading = of_page(page)
            if reading is not None:
                yield (
                    page.engine,
                    Facts(
                        pool=None,
                        running=page.running or 0,
                        waiting=page.waiting or 0,
                        reading=reading,
                        signals=known.get((page.engine, False)),
                        policy=self.policy,
                    ),
                )

    def _verdicts(self, now: float, unix_now: float) -> tuple[Verdict, ...]:
        kept = sorted(self._tracks.items(), key=lambda item: (self._order[item[0][0]], item[0][1]))
        return tuple(verdict_of(kind, subject, track, now, unix_now) for (kind, subject), track in kept)
