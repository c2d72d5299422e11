"""The processes around the engine cores of this node: workers and API servers, joined to their engines; and PyTorch
processes that belong to none.

A member is joined by the engine id that it inherited, a worker also by its data-parallel rank. Where that leaves a
choice (two engines made by one process, a successor of an engine with a fixed id), kinship decides: whose process is
the other's, its parent or its sibling, by their own view in one pid namespace.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.allocators import Allocator
from agent.bounded import bounded_member
from agent.liveness import has_gone, period_of
from agent.names import NodeNames, free_of
from agent.oom.log import Who
from agent.state import MemberState
from engine_hooks.members import FRONTEND, TORCH, WORKER, MemberReport
from engine_hooks.own_memory import EVERY_SECONDS, OwnMemoryRow
from engine_hooks.wire import Hello

MAX_MEMBERS = 512
MAX_PROCESSES = 64  # of no engine; each makes series of its own
MEMORY_SECONDS = 3 * EVERY_SECONDS  # who has not told its cgroup for so long does not any more
EVENTS_PER_SECOND = 2.0  # that a member may tell for long; hooks tell six each five seconds at most
EVENTS_AT_ONCE = 24.0
OTHER = "other"  # a role that newer hooks have and we do not know
_ROLES = (WORKER, FRONTEND, TORCH, OTHER)


class Core(NamedTuple):
    """What is to be known of an engine core to join members to it. ``key``: its instance."""

    key: str
    label: str
    hello: Hello
    link_up: bool


class Joined(NamedTuple):
    """Members by their core's instance, and how many belong to no core here."""

    members: dict[str, tuple[MemberState, ...]]
    unjoined: int


@dataclass(slots=True)
class _Member:
    hello: Hello
    pid: int
    heard: float
    link_up: bool = True
    report: MemberReport | None = None
    memory: OwnMemoryRow | None = None
    memory_told: float = 0.0
    process: str = ""
    allocator: Allocator = field(default_factory=Allocator)
    events: float = EVENTS_AT_ONCE  # that it may tell now
    events_at: float = 0.0
    found_in: tuple[Core, ...] | None = None  # the cores among which ``core`` was looked for
    core: Core | None = None

    @property
    def role(self) -> str:
        return self.hello.role if self.hello.role in _ROLES else OTHER


class MemberTable:
    """One record per member, keyed by its instance; times are monotonic seconds."""

    def __init__(self, gone_after_periods: float, names: NodeNames) -> None:
        self._gone_after = gone_after_periods
        self._names = names
        self._members: dict[str, _Member] = {}

    def hello(self, hello: Hello, pid: int, now: float) -> None:
        """A member introduced itself, or came back."""
        known = self._members.get(hello.instance)
        if known is not None:
            known.hello, known.pid, known.link_up, known.heard = hello, pid, True, now
            known.found_in = None
            return
        if len(self._members) >= MAX_MEMBERS:
            # There are fewer connections than that: somebody's link has ended.
            gone = min((m.link_up, m.heard, instance) for instance, m in self._members.items())
            del self._members[gone[2]]
        self._members[hello.instance] = _Member(hello, pid, now, process=self._name(hello, pid, now))

    def _name(self, hello: Hello, pid: int, now: float) -> str:
        """The first free name for a process of no engine; its place is taken over when its link has ended."""
        if hello.role != TORCH:
            return ""
        taken = {member.process for member in self._members.values() if member.link_up}
        name = free_of(hello.name, taken)
        if not self._names.processes.admits(name, now, *self._names.drawn_by(pid)):
            name = free_of(OTHER, taken)
        for instance, member in list(self._members.items()):
            if member.process == name:
                del self._members[instance]
        return name

    def forget(self, instance: str) -> None:
        """Its instance is an engine core's now."""
        self._members.pop(instance, None)

    def report(self, instance: str, report: MemberReport, cores: tuple[Core, ...], now: float) -> None:
        """A member reported."""
        member = self._members.get(instance)
        if member is not None:
            core = _core_of(member, cores)
            label = member.process or (core.label if core is not None else OTHER)
            report = bounded_member(report, self._names.of(label), now)
            member.report, member.heard = report, now
            if report.memory is not None:
                member.memory, member.memory_told = report.memory, now
            member.allocator.take(report, now)

    def allowed(self, instance: str, events: int, now: float) -> int:
        """Return how many of so many events of a member are looked at: each is read through for what failed."""
        member = self._members.get(instance)
        if member is None:
            return 0
        member.events = min(EVENTS_AT_ONCE, member.events + (now - member.events_at) * EVENTS_PER_SECOND)
        member.events_at = now
        taken = min(events, int(member.events))
        member.events -= taken
        return taken

    def who(self, instance: str, cores: tuple[Core, ...]) -> Who | None:
        """Return whose an event of this member is; None when it is not one. Without its core, its engine's name is its
        own word.
        """
        member = self._members.get(instance)
        if member is None:
            return None
        hello = member.hello
        core = _core_of(member, cores)
        name = core.label if core is not None else hello.name
        own = member.role == TORCH
        return Who(
            instance=instance,
            engine="" if own else name,
            process=member.process,
            role=member.role,
            rank=hello.rank,
            pid=member.pid,
        )

    def processes(self, now: float) -> tuple[MemberState, ...]:
        """Return the processes that belong to no engine, by name; ``MAX_PROCESSES`` at most.

        Where there are more, each pid's first comes before any pid's second, and of those who was here first: a name
        is the process's own word, and must not push others out.
        """
        before: Counter[int] = Counter()
        found: list[tuple[int, _Member]] = []
        for member in self._members.values():
            if member.role == TORCH:
                found.append((before[member.pid], member))
                before[member.pid] += 1
        kept = sorted(found, key=lambda pair: pair[0])[:MAX_PROCESSES]
        return tuple(sorted((self._state(member, now) for _, member in kept), key=lambda state: state.process))

    def disconnected(self, instance: str, now: float) -> bool:
        """The link to a member ended; return whether it is one of ours."""
        member = self._members.get(instance)
        if member is not None:
            member.link_up, member.heard = False, now
        return member is not None

    def tick(self, now: float) -> bool:
        """Let time pass; return whether anybody was there whose state changes with time: those who leave now too."""
        anybody = bool(self._members)
        for instance, member in list(self._members.items()):
            if not member.link_up and has_gone(member.hello, now - member.heard):
                del self._members[instance]
        return anybody

    def join(self, cores: tuple[Core, ...], now: float) -> Joined:
        """Return each core's members, workers first, by rank.

        Of two with one role and rank the one that is there counts, or else the younger; the other is unjoined.
        """
        seats: dict[tuple[str, str, int], _Member] = {}
        joined: dict[str, list[MemberState]] = {core.key: [] for core in cores}
        members_of_engines = [member for member in self._members.values() if member.role != TORCH]
        for member in sorted(members_of_engines, key=lambda m: (m.link_up, m.hello.started_at), reverse=True):
            core = _core_of(member, cores)
            if core is not None and self._may_sit(core, member, now):
                seat = (core.key, member.role, member.hello.rank)
                if seats.setdefault(seat, member) is member:
                    joined[core.key].append(self._state(member, now))
        members = {key: tuple(sorted(found, key=_by_seat)) for key, found in joined.items()}
        return Joined(members, len(members_of_engines) - len(seats))

    def _may_sit(self, core: Core, member: _Member, now: float) -> bool:
        return self._names.of(core.label).words.admits(f"{member.role} {member.hello.rank}", now)

    def _state(self, member: _Member, now: float) -> MemberState:
        hello = member.hello
        quiet = max(0.0, now - member.heard)
        up = member.link_up and member.report is not None and quiet <= self._gone_after * period_of(hello)
        report = member.report if up else None
        worker = report.worker if report else None
        frontend = report.frontend if report else None
        return MemberState(
            role=member.role,
            rank=hello.rank,
            pid=member.pid,
            own_pid=hello.pid,
            pid_namespace=hello.pid_namespace,
            host=hello.host,
            started_at=hello.started_at,
            up=up,
            link_up=member.link_up,
            heard_age_seconds=quiet,
            resident_bytes=report.resident_bytes if report else None,
            worker=worker,
            frontend=frontend,
            allocator=member.allocator.state(report, now) if report else None,
            process=member.process,
            instance=hello.instance,
            levers=hello.levers,
            in_force=report.in_force if report and up else (),
            hook_errors=report.errors if report else {},
            hooks_off=report.off if report else {},
            memory=member.memory if up and now - member.memory_told <= MEMORY_SECONDS else None,
        )


def _by_seat(member: MemberState) -> tuple[int, int]:
    return _ROLES.index(member.role), member.rank


def _core_of(member: _Member, cores: tuple[Core, ...]) -> Core | None:
    """The core that ``member`` works for; looked for anew only among others than the last time."""
    if member.found_in is not cores:
        member.found_in, member.core = cores, _nearest(member, cores)
    return member.core


def _nearest(member: _Member, cores: tuple[Core, ...]) -> Core | None:
    """Look for it. API servers stand in front of all data-parallel ranks: the first has them."""
    hello = member.hello
    possible = [
        core
        for core in cores
        if core.hello.engine_id == hello.engine_id and (member.role == FRONTEND or core.hello.index == hello.index)
    ]
    if not possible:
        return None
    return min(possible, key=lambda c: (_distance(c.hello, hello), not c.link_up, c.hello.index, -c.hello.started_at))


def _distance(core: Hello, member: Hello) -> int:
    """How near of kin two processes are: 0 the same one, 1 the core's child, 2 its parent or sibling, 3 strangers.

    The pids are their own views, so they compare only within one namespace.
    """
    if (core.host, core.pid_namespace) != (member.host, member.pid_namespace):
        return 3
    if core.pid == member.pid:
        return 0
    if core.pid == member.parent_pid:
        return 1
    return 2 if core.parent_pid > 0 and core.parent_pid in (member.pid, member.parent_pid) else 3
