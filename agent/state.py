"""The agent's state as immutable values: what every face (metrics, API, tables) is drawn from.

Absent, zero and failed are three things: a number that is not known is None, and ``phase`` with ``reason`` says
why. Times are Unix seconds unless the name says otherwise.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from engine_hooks.detail import Detail

# live: reports come. silent: the process is there, its engine thread says nothing. lost: the link is gone.
EnginePhase = Literal["live", "silent", "lost"]
VerdictPhase = Literal["suspect", "confirmed", "resolved"]


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all state values."""


class PoolState(Value, frozen=True, kw_only=True):
    """KV blocks now; ``held + cached_idle + empty = capacity``. ``block_bytes`` is one block on one rank."""

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

    ``sentence`` is for a person at 3 a.m.; ``remedy`` says what would help, or that nothing would.
    """

    kind: str
    phase: VerdictPhase
    since: float
    changed: float
    sentence: str
    remedy: str
    evidence: dict[str, float]


class EngineState(Value, frozen=True, kw_only=True):
    """One engine process. ``engine`` is its label: bounded and unique on the node while it lives.

    ``pid`` is as the agent sees it (0 when not visible). ``report_sequence`` numbers the engine's reports: a reader
    that sees each number has missed none. Counters and pool are None unless ``phase`` is live.
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
    verdicts: tuple[Verdict, ...]
    detail: Detail | None = None


class LinkState(Value, frozen=True, kw_only=True):
    """The agent's end of the link: counts since the agent started, by reason where a reason is given."""

    socket: str
    connections: int
    accepted: int
    frames: int
    rejected_frames: dict[str, int]
    refused_peers: dict[str, int]


class AgentState(Value, frozen=True, kw_only=True):
    """Everything that the agent knows at ``at``."""

    at: float
    version: str
    started_at: float
    ready: bool
    not_ready_reason: str
    link: LinkState
    engines: tuple[EngineState, ...]
