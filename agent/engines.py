"""The engines of this node: what each has told us, turned into state. No clock and no I/O of its own."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from agent.bounded import bounded, bounded_report
from agent.liveness import has_gone, period_of
from agent.members import MEMORY_SECONDS, Core, Joined, MemberTable
from agent.names import NodeNames, free_of
from agent.oom.log import FailureLog
from agent.state import EnginePhase, EngineState, HookState, MemberState, PoolState
from agent.units import human_seconds
from engine_hooks.detail import OTHER, Detail
from engine_hooks.levers.orders import LeverRow
from engine_hooks.members import CORE, FRONTEND, MemberReport
from engine_hooks.own_memory import OwnMemoryRow
from engine_hooks.wire import Heartbeat, Hello, PoolReport, Report

logger = logging.getLogger("kvtide.agent")

MAX_ENGINES = 256  # as many as there are connections: where there are more, somebody's has ended
DETAIL_PERIOD = 2.0  # seconds between two details of an engine, at most while its steps are short

NO_FRONTEND = "no Python API server is seen in front of it; enforce_admission of its core can refuse in its place"


@dataclass(slots=True)
class _Engine:
    hello: Hello
    label: str
    told_id: str
    pid: int
    heard: float
    link_up: bool = True
    reported: float | None = None
    report: Report | None = None
    detail: Detail | None = None
    memory: OwnMemoryRow | None = None
    memory_told: float = 0.0

    @property
    def period(self) -> float:
        return period_of(self.hello)


class EngineTable:
    """One record per engine process, keyed by its instance; times are monotonic seconds.

    ``version`` changes with every change of the state.
    """

    def __init__(self, gone_after_periods: float) -> None:
        self._gone_after = gone_after_periods
        self._engines: dict[str, _Engine] = {}
        self._names = NodeNames()
        self._members = MemberTable(gone_after_periods, self._names)
        self._asked, self._answer = (-1, 0.0), Joined({}, 0)
        self._known_cores: tuple[Core, ...] | None = None
        self.failures = FailureLog()
        self.version = 0

    def hello(self, hello: Hello, pid: int, now: float) -> None:
        """An engine process or a member introduced itself, or came back."""
        self.version += 1
        self._known_cores = None
        if hello.role != CORE:
            self._engines.pop(hello.instance, None)
            self._members.hello(hello, pid, now)
            return
        self._members.forget(hello.instance)
        known = self._engines.get(hello.instance)
        if known is not None:
            known.hello, known.pid, known.link_up, known.heard = hello, pid, True, now
            return
        if len(self._engines) >= MAX_ENGINES:
            gone = min((engine.link_up, engine.heard, instance) for instance, engine in self._engines.items())
            del self._engines[gone[2]]
        label = self._label(hello, pid, now)
        known_id = self._names.of(label).ids.admits(hello.engine_id, now)
        self._engines[hello.instance] = _Engine(hello, label, hello.engine_id if known_id else OTHER, pid, now)

    def report(self, instance: str, report: Report, now: float) -> None:
        """An engine process reported."""
        self.version += 1
        engine = self._engines[instance]
        engine.report = bounded_report(report, self._names.of(engine.label), now)
        engine.reported = engine.heard = now

    def detail(self, instance: str, detail: Detail, now: float) -> None:
        """An engine process told what it knows beyond its counters."""
        self.version += 1
        engine = self._engines[instance]
        engine.detail, engine.heard = bounded(detail, self._names.of(engine.label), now), now

    def member(self, instance: str, report: MemberReport, now: float) -> None:
        """A worker or an API server reported."""
        self.version += 1
        self._members.report(instance, report, self._cores(), now)
        if report.events:
            who = self._members.who(instance, self._cores())
            if who is not None:
                for event in report.events[: self._members.allowed(instance, len(report.events), now)]:
                    self.failures.add(who, event, now)

    def heartbeat(self, instance: str, heartbeat: Heartbeat, now: float) -> None:
        """An engine process lives, but its engine thread is silent; or it tells its memory."""
        engine = self._engines[instance]
        engine.heard = now
        if heartbeat.memory is not None:
            self.version += 1
            engine.memory, engine.memory_told = heartbeat.memory, now

    def disconnected(self, instance: str, now: float) -> None:
        """The link to an engine process ended."""
        self.version += 1
        self._known_cores = None
        if not self._members.disconnected(instance, now):
            engine = self._engines[instance]
            engine.link_up, engine.heard = False, now

    def tick(self, now: float) -> None:
        """Let time pass: forget engines that are gone, and age the rest."""
        if self._members.tick(now) or self._engines:
            self.version += 1
        for instance, engine in list(self._engines.items()):
            if not engine.link_up and has_gone(engine.hello, now - engine.heard):
                del self._engines[instance]
                self._known_cores = None

    def states(self, now: float, unix_now: float) -> tuple[EngineState, ...]:
        """Return the state of every engine, by label."""
        members = self._joined(now).members
        states = [self._state(engine, now, unix_now, members[key]) for key, engine in self._engines.items()]
        return tuple(sorted(states, key=lambda state: state.engine))

    def unjoined(self, now: float) -> int:
        """Return how many workers and API servers belong to no engine here."""
        return self._joined(now).unjoined

    def processes(self, now: float) -> tuple[MemberState, ...]:
        """Return the PyTorch processes that belong to no engine."""
        return self._members.processes(now)

    def folded_names(self) -> dict[str, int]:
        """Return how many names of engines and of theirs were too many since the agent started, by kind."""
        return self._names.refused()

    def _joined(self, now: float) -> Joined:
        asked = self.version, now
        if asked != self._asked:  # twice for each state
            self._asked, self._answer = asked, self._members.join(self._cores(), now)
        return self._answer

    def _cores(self) -> tuple[Core, ...]:
        """What members are joined to: the same object until an engine comes, loses its link or goes."""
        if self._known_cores is None:
            self._known_cores = tuple(Core(key, e.label, e.hello, e.link_up) for key, e in self._engines.items())
        return self._known_cores

    # -- one engine ---------------------------------------------------------------------------------------

    def _label(self, hello: Hello, pid: int, now: float) -> str:
        """The first free name. Lost engines of that name make room: their successors take their places.

        One that nobody has heard of while there are too many new ones is called ``other``: it is served all the same.
        """
        name = _base_label(hello)
        for instance, engine in list(self._engines.items()):
            if not engine.link_up and _base_label(engine.hello) == name:
                del self._engines[instance]
        taken = {engine.label for engine in self._engines.values()}
        label = free_of(name, taken)
        if self._names.engines.admits(label, now, *self._names.drawn_by(pid)):
            return label
        if self._names.engines.refused == 1:
            logger.warning("engine %s: too many new names; it and further ones are called %s", label, OTHER)
        return free_of(OTHER, taken)

    def _phase(self, engine: _Engine, now: float) -> tuple[EnginePhase, str]:
        limit = self._gone_after * engine.period
        quiet = now - engine.heard
        if not engine.link_up:
            return "lost", f"the link ended {human_seconds(quiet)} ago: the engine or its hooks are gone"
        if quiet > limit:
            return "silent", f"no word for {human_seconds(quiet)}: the process is stopped or gets no CPU"
        if engine.reported is None:
            return "silent", "connected; no report yet"
        age = now - engine.reported
        # An engine in its caller's loop reports only while it steps; at rest nothing in it changes.
        if age > limit and not engine.hello.in_process:
            return "silent", f"its engine thread has finished no step for {human_seconds(age)}"
        return "live", ""

    def _state(self, engine: _Engine, now: float, unix_now: float, members: tuple[MemberState, ...]) -> EngineState:
        hello, report, names = engine.hello, engine.report, self._names.of(engine.label)
        phase, reason = self._phase(engine, now)
        live = report if phase == "live" else None
        return EngineState(
            engine=engine.label,
            engine_id=hello.engine_id,
            told_id=engine.told_id,
            instance=hello.instance,
            host=hello.host,
            pid=engine.pid,
            index=hello.index,
            rank=hello.rank,
            started_at=hello.started_at,
            engine_version=names.word(hello.engine_version, now),
            hooks_version=names.word(hello.hooks_version, now),
            phase=phase,
            reason=reason,
            link_up=engine.link_up,
            report_age_seconds=None if engine.reported is None else max(0.0, now - engine.reported),
            report_sequence=live.sequence if live else None,
            steps=live.steps if live else None,
            running=live.running if live else None,
            waiting=live.waiting if live else None,
            pool=self._pool(engine) if live else None,
            audit_supported=hello.audit.ok,
            audit_reason=hello.audit.reason,
            hooks=_hooks(live) if live else None,
            own_pid=hello.pid,
            pid_namespace=hello.pid_namespace,
            world_size=hello.world_size or None,
            workers_expected=hello.local_world_size or None,
            frontends_expected=max((m.frontend.count for m in members if m.frontend), default=None),
            members=members,
            detail=self._detail(engine) if live else None,
            levers=(*hello.levers, *_not_in_front(hello, members)),
            in_force=live.in_force if live else (),
            memory=engine.memory if engine.link_up and now - engine.memory_told <= MEMORY_SECONDS else None,
        )

    def _detail(self, engine: _Engine) -> Detail | None:
        """The last detail, unless reports have gone on without one for so long that it may be wrong by now."""
        report, detail = engine.report, engine.detail
        if report is None or detail is None:
            return None
        behind = report.monotonic - detail.monotonic
        return detail if behind <= self._gone_after * max(DETAIL_PERIOD, engine.period) else None

    @staticmethod
    def _pool(engine: _Engine) -> PoolState | None:
        pool: PoolReport | None = engine.report.pool if engine.report else None
        if pool is None or pool.capacity <= 0:  # shares of nothing can't be told
            return None
        info = engine.hello.pool
        free = pool.capacity - pool.held
        return PoolState(
            capacity=pool.capacity,
            held=pool.held,
            held_min=pool.held_min,
            held_max=pool.held_max,
            cached_idle=pool.cached_idle,
            empty=None if pool.cached_idle is None else free - pool.cached_idle,
            orphaned=pool.orphaned,
            over_freed=pool.over_freed,
            exact=pool.exact,
            audits=pool.audits,
            ledger_drift=pool.ledger_drift,
            block_tokens=info.block_tokens if info else None,
            block_bytes=info.block_bytes if info else None,
            cache_dtype=info.cache_dtype if info else "",
            longest_tokens=info.longest_tokens if info else None,
            delayed=pool.delayed,
            deferred=pool.deferred,
            pinned=pool.pinned,
        )


def _not_in_front(hello: Hello, members: tuple[MemberState, ...]) -> tuple[LeverRow, ...]:
    """Return the lever that Python API servers alone have, as unsupported where none is in front of an engine.

    They are joined to the first data-parallel rank; one that is on another node can't be seen from the others.
    """
    if not hello.levers or hello.index or any(member.role == FRONTEND for member in members):
        return ()
    return (LeverRow(lever="admission", ok=False, reason=NO_FRONTEND),)


def _base_label(hello: Hello) -> str:
    ranked = hello.data_parallel or hello.data_parallel_size > 1
    return f"{hello.name}-dp{hello.index}" if ranked else hello.name


def _hooks(report: Report) -> HookState:
    hooks = report.hooks
    return HookState(
        errors=hooks.errors,
        off=hooks.off,
        dropped_frames=hooks.dropped_frames,
        hook_seconds=hooks.hook_seconds,
        step_seconds=hooks.step_seconds,
    )
