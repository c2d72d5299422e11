"""The judge: states in, judgements out. The same for the live agent, replay and backtest; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from agent.policy.types import DEFAULT, Policy
from agent.retained import peers_of
from agent.signals.baseline import Baselines
from agent.signals.kept import Tracks
from agent.signals.node import SIGNALS, NodeTracker, parts_of
from agent.signals.score import scores
from agent.signals.series import Pace
from agent.signals.types import EngineSignals, NodeSignals, Score, TenantSignals
from agent.state import AgentState, Judgement, Verdict
from agent.subject import Subject
from agent.verdicts import DETECTORS, NODE_DETECTORS
from agent.verdicts.base import (
    Detector,
    Facts,
    Finding,
    NodeDetector,
    Track,
    View,
    advance,
    ended,
    passed_over,
    verdict_of,
)
from agent.verdicts.endings import ENGINE_GONE, OUT_OF_SIGHT, ending_of
from agent.verdicts.presence import Presence
from agent.verdicts.seen import Seen
from engine_hooks.members import WORKER

HELD_SECONDS = 600.0  # a verdict on something that can't be seen any more stays for so long

OF_ALL_LIVES = frozenset({"restart_loop", "engine_missing", "oom"})  # these do not end with one life of an engine

OF_AN_ENGINE = frozenset({"engine", "tenant", "process", "host"})  # scopes whose subjects may be of one engine

SCORES = "scores"

_Key = tuple[str, Subject]
OnError = Callable[[str, Exception], None]


class Judge:
    """Folds states in the order of their monotonic times; gaps between them are no evidence of anything.

    ``baselines``: what a judge before this one had learned; ``tracks``: what its slow estimates rested on.
    ``on_error`` gets what fails, by name, and the rest is judged; without it the first failure is raised. ``tracker``:
    works the signals out where several judges of the same states share one; what it had learned is its own matter.
    """

    def __init__(
        self,
        policy: Policy = DEFAULT,
        baselines: Baselines | None = None,
        on_error: OnError | None = None,
        tracks: Tracks | None = None,
        *,
        tracker: NodeTracker | None = None,
    ) -> None:
        self.policy = policy
        self._on_error = on_error
        self._failed: set[str] = set()
        self._tracker = tracker or NodeTracker(policy, baselines, tracks, on_error and self._error)
        self._presence = Presence()
        self._pace = Pace()
        self._tracks: dict[_Key, Track] = {}
        self._instances: dict[str, str] = {}
        self._peers: dict[str, str] = {}
        detectors: tuple[Detector | NodeDetector, ...] = (*DETECTORS, *NODE_DETECTORS)
        self._order = {each.kind: number for number, each in enumerate(detectors)}
        self._times = {each.kind: (each.confirm_seconds, each.clear_seconds) for each in detectors}
        self._of_absence = {each.kind for each in NODE_DETECTORS if each.of_absence}

    def adopt(self, policy: Policy) -> None:
        """Judge by another policy from now on; verdicts that stand go on standing."""
        self.policy = policy
        self._tracker.adopt(policy)

    def baselines(self) -> Baselines:
        """Return what has been learned of the engines; it goes on being learned."""
        return self._tracker.baselines()

    def tracks(self) -> Tracks:
        """Return what the slow estimates rest on, so that a judge after this one can go on from it."""
        return self._tracker.tracks()

    def look(self, state: AgentState) -> Judgement:
        """Return what is made of ``state`` and of all states before it."""
        now, last = state.monotonic, self._pace.last
        apart = 0.0 if last is None else max(0.0, now - last)
        if self._pace.take(now) == "gap":
            self._pass_over(apart)
            apart = 0.0  # it has been passed over
        self._close_gone(state, now)
        self._failed.clear()
        signals = NodeSignals()
        try:
            signals = self._tracker.take(state)
        except Exception as error:
            self._error(SIGNALS, error)
        findings = dict(self._findings(state, signals))
        seen = Seen(state)
        held: set[_Key] = set()
        for key in {*findings, *self._tracks}:
            kind, subject = key
            track = self._tracks.get(key)
            judged = not self._failed & {kind, SIGNALS, *parts_of(subject)} and (
                kind in self._of_absence or seen.has(kind, subject)
            )
            if key in findings or judged or (track and track.phase == "resolved"):
                how = (track.finding.ending if track else "") or ending_of(kind, back=seen.has(kind, subject))
                track = advance(track, findings.get(key), now, *self._times[kind], ending=how)
            elif track is not None and now - track.seen > HELD_SECONDS:
                track = ended(track, now, OUT_OF_SIGHT)
            else:
                held.add(key)
                track = track and passed_over(track, apart)
            if track is None:
                self._tracks.pop(key, None)
            else:
                self._tracks[key] = track
        verdicts = self._verdicts(now, state.at, held)
        found: tuple[Score, ...] = ()
        try:
            found = scores(state, signals, verdicts, self.policy)
        except Exception as error:
            self._error(SCORES, error)
        return Judgement(at=state.at, signals=signals, verdicts=verdicts, scores=found)

    def _pass_over(self, seconds: float) -> None:
        """Take no account of a time without states: it confirms no suspicion, raises no tier, resolves no verdict."""
        self._presence.pass_over(seconds)
        for key, track in self._tracks.items():
            if track.phase != "resolved":
                self._tracks[key] = replace(passed_over(track, seconds), seen=track.seen + seconds)

    def _close_gone(self, state: AgentState, now: float) -> None:
        """Forget engines that have ended or restarted; end their verdicts: what a dead process leaked is no more."""
        instances = {engine.engine: engine.instance for engine in state.engines}
        for key, track in list(self._tracks.items()):
            kind, subject = key
            before = self._instances.get(subject.engine)
            of_one_life = subject.scope in OF_AN_ENGINE and kind not in OF_ALL_LIVES
            if of_one_life and before is not None and instances.get(subject.engine) != before:
                closed = ended(track, now, ENGINE_GONE)
                if closed is None:
                    del self._tracks[key]
                else:
                    self._tracks[key] = closed
        same = {engine for engine, instance in instances.items() if self._instances.get(engine) == instance}
        told = peers_of((engine.engine, engine.detail) for engine in state.engines)
        # One that has fallen silent, whose transfers are stuck then, is still called by its name.
        self._peers = {name: engine for name, engine in self._peers.items() if engine in same} | told
        self._instances = instances

    def _findings(self, state: AgentState, signals: NodeSignals) -> Iterator[tuple[_Key, Finding]]:
        for name, facts in self._facts(state, signals):
            subject = Subject(scope="engine", engine=name)
            for detector in DETECTORS:
                try:
                    finding = detector.judge(facts)
                except Exception as error:
                    self._error(detector.kind, error)
                    continue
                if finding is not None:
                    yield (detector.kind, subject), finding
        here = self._presence
        view = View(state, signals, self.policy, here.take(state), here.lost, here.killed)
        for node_detector in NODE_DETECTORS:
            try:
                found = tuple(node_detector.judge(view))
            except Exception as error:
                self._error(node_detector.kind, error)
                continue
            for subject, finding in found:
                yield (node_detector.kind, subject), finding

    def _error(self, name: str, error: Exception) -> None:
        if self._on_error is None:
            raise error
        self._failed.add(name)
        self._on_error(name, error)

    def _facts(self, state: AgentState, signals: NodeSignals) -> Iterator[tuple[str, Facts]]:
        """Yield what is known of each engine that says something. One that is scraped under the name that it has by its
        hooks is judged by those: a page has only a part of what they say.
        """
        readings = self._tracker.readings
        known = {(each.engine, each.hooked): each for each in signals.engines}
        tenants: dict[str, list[TenantSignals]] = {}
        for each in signals.tenants:
            tenants.setdefault(each.engine, []).append(each)
        hooked: set[str] = set()
        residue = _residue(state, known)
        for engine in state.engines:
            if engine.phase == "live":
                hooked.add(engine.engine)
                yield (
                    engine.engine,
                    Facts(
                        pool=engine.pool,
                        detail=engine.detail,
                        running=engine.running or 0,
                        waiting=engine.waiting or 0,
                        peers=self._peers,
                        engine=engine,
                        reading=readings.get((engine.engine, True)),
                        signals=known.get((engine.engine, True)),
                        tenants=tuple(tenants.get(engine.engine, ())),
                        policy=self.policy,
                        node_residue_bytes=residue,
                    ),
                )
        for page in state.scrape.engines if state.scrape else ():
            reading = readings.get((page.engine, False))
            if reading is not None and page.engine not in hooked:
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

    def _verdicts(self, now: float, unix_now: float, held: set[_Key]) -> tuple[Verdict, ...]:
        kept = sorted(self._tracks.items(), key=lambda item: (self._order[item[0][0]], item[0][1]))
        return tuple(
            verdict_of(kind, subject, track, now, unix_now, held=(kind, subject) in held)
            for (kind, subject), track in kept
        )


def _residue(state: AgentState, known: Mapping[tuple[str, bool], EngineSignals]) -> int | None:
    """Return the bytes that interrupted requests of all engines have left on this node; None where none tells."""
    told = [
        each.residue_bytes and each.residue_bytes * max(1, engine.up(WORKER))
        for engine in state.engines
        if (each := known.get((engine.engine, True))) is not None and each.residue_bytes is not None
    ]
    return sum(told) if told else None
