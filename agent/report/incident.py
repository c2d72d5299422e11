"""One recording, gathered for a report: verdicts, series, whose memory, what was done, what harm there was."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from agent.actions.types import Action
from agent.backtest.harm import HarmLog
from agent.backtest.result import Harm
from agent.policy.types import Policy
from agent.replay.bundles import BundleReplay, replay_bundle
from agent.report.owners import Owners
from agent.report.track import Track
from agent.signals.types import EngineSignals
from agent.state import AgentState, EngineState, Judgement
from agent.waterfall.state import Waterfall

MOST_ENGINES, MOST_GPUS = 64, 64  # the rest is counted
MOST_ACTIONS = 1000
ENGINE_SERIES = (
    "capacity", "held", "orphaned", "cached_idle", "empty", "use", "unexplained", "score", "running", "waiting",
)  # fmt: skip
GPU_SERIES = ("total", "used")


@dataclass(slots=True)
class Incident:
    """``replay``: what the bundle is and its verdicts. ``engines`` and ``gpus``: series by label. ``first`` and
    ``last``: the waterfalls of the first state that had one of a GPU, and of the last. ``harm``: stretches by sort,
    ``first_harm``: the first of all. ``modes``: those that actions were in. ``more``: engines and GPUs beyond what is
    kept.
    """

    replay: BundleReplay
    engines: dict[str, Track] = field(default_factory=dict)
    gpus: dict[str, Track] = field(default_factory=dict)
    first: dict[str, Waterfall] = field(default_factory=dict)
    last: dict[str, Waterfall] = field(default_factory=dict)
    owners: Owners = field(default_factory=Owners)
    actions: list[Action] = field(default_factory=list)
    modes: list[str] = field(default_factory=list)
    breaker: str = ""
    harm: dict[str, int] = field(default_factory=dict)
    first_harm: Harm | None = None
    more: int = 0


def gather(path: Path, policy: Policy | None = None, named: str = "") -> Incident:
    """Return what the bundle at ``path`` tells; see :func:`agent.replay.bundles.replay_bundle` for what it raises."""
    gathering = _Gathering()
    replay = replay_bundle(path, policy, named, watch=gathering.take)
    return gathering.finish(replay)


class _Gathering:
    def __init__(self) -> None:
        self._engines: dict[str, Track] = {}
        self._gpus: dict[str, Track] = {}
        self._first: dict[str, Waterfall] = {}
        self._last: dict[str, Waterfall] = {}
        self._owners = Owners()
        self._actions: dict[str, Action] = {}
        self._modes: dict[str, None] = {}
        self._breaker = ""
        self._harm = HarmLog()
        self._left_out: set[str] = set()

    def take(self, state: AgentState, judgement: Judgement) -> None:
        signals = {each.engine: each for each in judgement.signals.engines}
        scores = {
            each.engine: each.value for each in judgement.scores if (each.scope, each.form) == ("engine", "kvtide")
        }
        hooked = {each.engine: each for each in state.engines}
        for name in {**hooked, **signals}:
            track = self._track(self._engines, name, MOST_ENGINES, ENGINE_SERIES, "held")
            if track is not None:
                track.add(state.at, _engine(hooked.get(name), signals.get(name), scores.get(name)))
        for gpu in state.device.gpus if state.device is not None else ():
            if gpu.memory is None:
                continue
            track = self._track(self._gpus, gpu.gpu, MOST_GPUS, GPU_SERIES, "used")
            if track is not None:
                track.add(state.at, {"total": float(gpu.memory.total), "used": float(gpu.memory.used)})
        for waterfall in state.waterfalls:
            self._first.setdefault(waterfall.gpu, waterfall)
            self._last[waterfall.gpu] = waterfall
        self._owners.take(state)
        self._harm.take(state, judgement, state.at)
        if state.actions is not None:
            self._modes[state.actions.mode] = None
            self._breaker = state.actions.breaker.reason if state.actions.breaker.open else ""
            for action in state.actions.recent:
                if action.id in self._actions or len(self._actions) < MOST_ACTIONS:
                    self._actions[action.id] = action

    def finish(self, replay: BundleReplay) -> Incident:
        began, ended = replay.began or 0.0, replay.ended
        return Incident(
            replay=replay,
            engines=self._engines,
            gpus=self._gpus,
            first=self._first,
            last=self._last,
            owners=self._owners,
            actions=sorted(self._actions.values(), key=lambda each: (each.at, each.id)),
            modes=list(self._modes),
            breaker=self._breaker,
            harm=self._harm.counts(),
            first_harm=self._harm.first("", began, ended),
            more=len(self._left_out),
        )

    def _track(self, tracks: dict[str, Track], name: str, most: int, names: tuple[str, ...], peak: str) -> Track | None:
        if name not in tracks:
            if len(tracks) >= most:
                self._left_out.add(name)
                return None
            tracks[name] = Track(names, peak)
        return tracks[name]


def _engine(engine: EngineState | None, signals: EngineSignals | None, score: float | None) -> dict[str, float | None]:
    values: dict[str, float | None] = {"score": score}
    if signals is not None:
        values["use"] = signals.use_ratio
        values["unexplained"] = signals.unexplained.per_minute if signals.unexplained is not None else None
    if engine is not None and engine.phase == "live":
        values["running"], values["waiting"] = engine.running, engine.waiting
        if (pool := engine.pool) is not None:
            values |= {
                "capacity": pool.capacity,
                "held": pool.held,
                "orphaned": pool.orphaned,
                "cached_idle": pool.cached_idle,
                "empty": pool.empty,
            }
    return values
