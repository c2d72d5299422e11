"""The agent's state as immutable values: what every face (metrics, API, tables) is drawn from.

Absent, zero and failed are three things: a number that is not known is None, and ``phase`` with ``reason`` says
why. Times are Unix seconds unless the name says otherwise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from agent.actions.types import ActionsState
from agent.balancer.state import BalancerState
from agent.oom.log import Failure, FailureCount
from agent.policy.state import PolicyState
from agent.recorder.state import RecorderState
from agent.signals.types import NodeSignals, Score
from agent.sources.base import SourceState
from agent.sources.device.state import DevicesState
from agent.sources.driver_calls.state import DriverCallsState
from agent.sources.host.state import HostState
from agent.sources.scrape.state import ScrapedState
from agent.subject import Subject, Value
from agent.waterfall.state import Waterfall
from agent.web.state import HttpState
from engine_hooks.allocator import AllocatorRow, HistoryRow
from engine_hooks.detail import Detail
from engine_hooks.levers.orders import LeaseRow, LeverRow
from engine_hooks.members import FrontendRow, WorkerRow
from engine_hooks.own_memory import OwnMemoryRow

# live: reports come. silent: the process is there, its engine thread says nothing. lost: the link is gone.
EnginePhase = Literal["live", "silent", "lost"]
VerdictPhase = Literal["suspect", "confirmed", "resolved"]
# note: to be known, nobody is told. warn: to be seen to in working hours. page: somebody gets up.
Tier = Literal["note", "warn", "page"]


class PoolState(Value, frozen=True, kw_only=True):
    """KV blocks now; ``held + cached_idle + empty = capacity``. ``block_bytes`` is one block on one rank.

    ``delayed``: kept for a connector; ``deferred``: for a step in flight; ``pinned``: references that nothing explains
    but a connector. ``cache_dtype``: as the engine's settings call it, empty where it does not say;
    ``longest_tokens``: what one request may have.
    """

    capacity: int
    held: int
    held_min: int
    held_max: int
    cached_idle: int | None
    empty: int | None
    orphaned: int | None
    over_freed: int | None
    exact: bool
    audits: int
    ledger_drift: int
    block_tokens: int | None
    block_bytes: int | None
    delayed: int | None = None
    deferred: int | None = None
    pinned: int | None = None
    cache_dtype: str = ""
    longest_tokens: int | None = None

    def bytes_of(self, blocks: int | None) -> int | None:
        """Bytes of ``blocks`` blocks on one rank, or None when either is not known."""
        return None if blocks is None or self.block_bytes is None else blocks * self.block_bytes


class HookState(Value, frozen=True, kw_only=True):
    """What the hooks in this engine cost and what went wrong in them."""

    errors: dict[str, int]
    off: dict[str, str]
    dropped_frames: int
    hook_seconds: float
    step_seconds: float


class Verdict(Value, frozen=True, kw_only=True):
    """A judgement: ``kind`` in the design's list, ``since`` when it began, ``evidence`` in numbers with units.
    ``changed``: when its phase or tier did last; ``confirmed``: since when it is confirmed, None before that, and in a
    recording of an agent that did not tell.

    ``sentence`` is for a person at 3 a.m.; ``remedy`` says what would help, or that nothing would. ``tier``: who has to
    know. ``ending``: how a resolved one has ended. ``held``: what it is about can't be seen now, so that nobody knows
    whether it is still so.
    """

    kind: str
    phase: VerdictPhase
    since: float
    changed: float
    sentence: str
    remedy: str
    evidence: dict[str, float]
    subject: Subject = Subject(scope="node")
    tier: Tier = "page"
    ending: str = ""
    held: bool = False
    confirmed: float | None = None


class Judgement(Value, frozen=True, kw_only=True):
    """What is made of a state: signals, verdicts of all scopes (what harms most first), health scores."""

    at: float
    signals: NodeSignals = NodeSignals()
    verdicts: tuple[Verdict, ...] = ()
    scores: tuple[Score, ...] = ()


class AllocatorState(Value, frozen=True, kw_only=True):
    """torch's allocator in one process. ``row`` with the last walk over its segments, ``walk_age_seconds`` old; one
    that has become too old is left out. ``history``: the outcome of the last recording of allocations.
    """

    row: AllocatorRow
    walk_age_seconds: float | None
    history: HistoryRow | None


class MemberState(Value, frozen=True, kw_only=True):
    """A process that works for an engine core: ``role`` is worker, frontend, or other where it is newer than we are. Or
    a PyTorch process that belongs to no engine: ``role`` is torch, and ``process`` its name, unique on the node.
    ``instance`` is drawn anew by each; orders are addressed to it. ``levers``: what it can be asked to do;
    ``in_force``: what it has been ordered and is held to. ``hook_errors``: exceptions of our hooks in it, by hook;
    ``hooks_off``: those that were switched off, with the reason. ``memory``: its own and its cgroup's, by its own word.

    ``pid`` is as the agent sees it (0 when not visible), by the kernel's word; ``own_pid`` as it sees itself in its
    ``pid_namespace``. ``rank``: a worker's in its data-parallel rank's world, an API server's number. ``up``: it
    reports; otherwise nothing that it once said is shown.
    """

    role: str
    rank: int
    pid: int
    own_pid: int
    pid_namespace: int
    host: str
    started_at: float
    up: bool
    link_up: bool
    heard_age_seconds: float
    resident_bytes: int | None
    worker: WorkerRow | None
    frontend: FrontendRow | None
    allocator: AllocatorState | None = None
    process: str = ""
    instance: str = ""
    levers: tuple[LeverRow, ...] = ()
    in_force: tuple[LeaseRow, ...] = ()
    hook_errors: dict[str, int] = msgspec.field(default_factory=dict)
    hooks_off: dict[str, str] = msgspec.field(default_factory=dict)
    memory: OwnMemoryRow | None = None


class EngineState(Value, frozen=True, kw_only=True):
    """One engine process. ``engine`` is its label: bounded and unique on the node while it lives.

    ``members`` are the processes around it on this node. API servers stand in front of all data-parallel ranks of an
    engine and are shown with the first. ``workers_expected`` is None where another places them (Ray), ``world_size``
    counts those of other nodes too.
    ``pid`` is as the agent sees it (0 when not visible). ``report_sequence`` numbers the engine's reports: a reader
    that sees each number has missed none. Counters and pool are None unless ``phase`` is live. ``levers``: what it can
    be asked to do; ``in_force``: what it has been ordered and is held to. ``told_id``: ``engine_id`` as metrics tell
    it, ``other`` where that is one too many. ``memory``: its process's own and its cgroup's, by its own word.
    """

    engine: str
    engine_id: str
    instance: str
    host: str
    pid: int
    index: int
    rank: int
    started_at: float
    engine_version: str
    hooks_version: str
    phase: EnginePhase
    reason: str
    link_up: bool
    report_age_seconds: float | None
    report_sequence: int | None
    steps: int | None
    running: int | None
    waiting: int | None
    pool: PoolState | None
    audit_supported: bool
    audit_reason: str
    hooks: HookState | None
    verdicts: tuple[Verdict, ...] = ()
    detail: Detail | None = None
    own_pid: int = 0
    pid_namespace: int = 0
    world_size: int | None = None
    workers_expected: int | None = None
    frontends_expected: int | None = None
    members: tuple[MemberState, ...] = ()
    levers: tuple[LeverRow, ...] = ()
    in_force: tuple[LeaseRow, ...] = ()
    told_id: str = ""
    memory: OwnMemoryRow | None = None

    def up(self, role: str) -> int:
        """How many members of ``role`` report."""
        return sum(member.up and member.role == role for member in self.members)


class LinkState(Value, frozen=True, kw_only=True):
    """The agent's end of the link: counts since the agent started, by reason where a reason is given. ``folded_names``:
    names of engines, tenants and the like that were too many, by kind (:mod:`agent.names`).
    """

    socket: str
    connections: int
    accepted: int
    frames: int
    rejected_frames: dict[str, int]
    refused_peers: dict[str, int]
    wire_version: int | None = None
    folded_names: dict[str, int] = msgspec.field(default_factory=dict)


class AgentState(Value, frozen=True, kw_only=True):
    """Everything that the agent knows at ``at``. ``unjoined_members``: workers and API servers of no engine here.
    ``processes``: PyTorch processes that belong to no engine. ``failures``: what failed for want of memory or of a
    device, newest first, of processes that are gone, too; ``failure_counts``: since the agent started. ``waterfalls``:
    where each GPU's memory is.

    ``device``, ``host``, ``scrape`` and ``driver_calls`` are what the sources of these names read; None where
    ``sources`` says that one is not up, or has no entry for one that is switched off. ``monotonic``: the moment by the
    clock that never jumps, in seconds; differences between states are taken from it. ``judgement``: what was made of
    the node up to a second ago; engines have their own verdicts, too. ``judge_errors``: how often a detector (or the
    signals) has failed, by name. ``recorder``: None where it is switched off. ``actions``, ``balancer``, ``policy``:
    None in a recording of before there were any. ``http``: None before the port is served, and in a recording.
    """

    at: float
    monotonic: float
    version: str
    started_at: float
    ready: bool
    not_ready_reason: str
    link: LinkState
    engines: tuple[EngineState, ...]
    unjoined_members: int = 0
    sources: tuple[SourceState, ...] = ()
    device: DevicesState | None = None
    host: HostState | None = None
    scrape: ScrapedState | None = None
    driver_calls: DriverCallsState | None = None
    processes: tuple[MemberState, ...] = ()
    failures: tuple[Failure, ...] = ()
    failure_counts: tuple[FailureCount, ...] = ()
    waterfalls: tuple[Waterfall, ...] = ()
    judgement: Judgement | None = None
    recorder: RecorderState | None = None
    actions: ActionsState | None = None
    balancer: BalancerState | None = None
    policy: PolicyState | None = None
    http: HttpState | None = None
    judge_errors: dict[str, int] = msgspec.field(default_factory=dict)
