"""Who was here: engines that have gone, and how many of their processes there once were."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.sources.host.state import KilledState
from agent.sources.scrape.state import ScrapedEngine
from agent.state import AgentState, EngineState
from agent.verdicts.base import Gone
from engine_hooks.members import FRONTEND, WORKER

FORGOTTEN_SECONDS = 900.0  # an engine that is gone for so long has moved
MOST = 64


@dataclass(slots=True)
class _Last:
    hooked: bool
    instance: str
    started_at: float
    running: int | None
    waiting: int | None
    most: dict[str, int] = field(default_factory=dict)
    gone_since: float | None = None
    silent_since: float | None = None


class Presence:
    """Remembers the engines of one node; times are monotonic seconds. ``lost``: when GPUs that are lost were first seen
    to be, by label; by the wall clock, as their errors are. ``killed``: who was, as the host's source told it last:
    while that fails they are not alive again.
    """

    def __init__(self) -> None:
        self.lost: dict[str, float] = {}
        self.killed: tuple[KilledState, ...] = ()
        self._known: dict[tuple[bool, str], _Last] = {}

    def pass_over(self, seconds: float) -> None:
        """Take no account of a time without states: who came and went in it nobody knows."""
        for last in self._known.values():
            if last.gone_since is not None:
                last.gone_since += seconds
            if last.silent_since is not None:
                last.silent_since += seconds

    def take(self, state: AgentState) -> tuple[Gone, ...]:
        """Take the next state; return who is missing: engines that have gone, and processes of those that are here."""
        now = state.monotonic
        if state.device is not None:
            gone = (gpu.gpu for gpu in state.device.gpus if gpu.lost)
            self.lost = {gpu: self.lost.get(gpu, state.at) for gpu in gone}
        if state.host is not None:
            self.killed = state.host.killed
        here: set[tuple[bool, str]] = set()
        for engine in state.engines:
            if engine.phase != "lost":
                here.add((True, engine.engine))
                self._hooked(engine, now)
        for page in state.scrape.engines if state.scrape else ():
            if page.phase in ("up", "stale", "bad_page"):  # what answers is there, whatever it says
                here.add((False, page.engine))
                self._paged(page)
        names = {_base(engine.engine): engine.started_at for engine in state.engines if engine.phase == "live"}
        for key, last in list(self._known.items()):
            if key in here or (not key[0] and state.scrape is None):
                continue
            if last.gone_since is None:
                last.gone_since = now
            # One that took its place while it was still here has another label.
            succeeded = key[0] and names.get(_base(key[1]), 0.0) > last.started_at
            if succeeded or now - last.gone_since > FORGOTTEN_SECONDS:
                del self._known[key]
        while len(self._known) > MOST:
            del self._known[min(self._known, key=lambda key: self._known[key].gone_since or now)]
        return tuple(self._missing(state, now))

    def _hooked(self, engine: EngineState, now: float) -> None:
        key = (True, engine.engine)
        last = self._known.get(key)
        if last is None or last.instance != engine.instance:
            last = self._known[key] = _Last(True, engine.instance, engine.started_at, None, None)
        last.gone_since = None
        if engine.phase == "live":
            last.running, last.waiting, last.silent_since = engine.running, engine.waiting, None
        elif last.silent_since is None:
            last.silent_since = now
        for role in (WORKER, FRONTEND):
            last.most[role] = max(last.most.get(role, 0), engine.up(role))

    def _paged(self, page: ScrapedEngine) -> None:
        last = self._known.get((False, page.engine))
        if page.phase == "up" or last is None:
            self._known[False, page.engine] = _Last(False, page.url, 0.0, page.running, page.waiting)
        else:
            last.gone_since = None

    def _missing(self, state: AgentState, now: float) -> Iterator[Gone]:
        for (hooked, name), last in self._known.items():
            since = last.silent_since if last.gone_since is None else last.gone_since
            if since is not None:
                yield Gone(
                    engine=name,
                    hooked=hooked,
                    seconds=now - since,
                    running=last.running,
                    waiting=last.waiting,
                    silent=last.gone_since is None,
                )
        for engine in state.engines:
            known = self._known.get((True, engine.engine))
            if engine.phase != "live" or known is None:
                continue
            for role, expected in ((WORKER, engine.workers_expected), (FRONTEND, engine.frontends_expected)):
                most = min(known.most.get(role, 0), expected) if expected is not None else known.most.get(role, 0)
                if engine.up(role) < most:
                    yield Gone(engine=engine.engine, hooked=True, role=role, up=engine.up(role), expected=most)


def _base(label: str) -> str:
    """The name that a label was made of."""
    return label.partition("~")[0]
