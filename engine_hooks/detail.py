"""The wire's slower half: what an engine knows beyond its counters, sent once a second.

Every section is optional: None says that this engine can't tell, an empty tuple that there is nothing. Counts whose
name ends in ``_total`` only grow while the engine lives. Ages and durations are seconds. Ids of requests and sessions
are hashes unless the engine's environment says otherwise.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from engine_hooks.wire_types import Blocks, Message, Name, Text

MAX_ROWS = 64
OTHER = "other"  # the row that takes what no longer fits


class Histogram(Message, frozen=True, kw_only=True):
    """Counts by upper bound, not cumulative; ``counts`` has one more entry than ``bounds``, for what lies above."""

    bounds: Annotated[tuple[float, ...], msgspec.Meta(max_length=32)]
    counts: Annotated[tuple[Blocks, ...], msgspec.Meta(max_length=33)]
    sum: float


class PoolRow(Message, frozen=True, kw_only=True):
    """A block pool beside the main one: host memory of an offload tier or of a sparse cache."""

    pool: Name
    capacity: Blocks
    held: Blocks
    orphaned: Blocks | None
    over_freed: Blocks | None
    reason: Text = ""


class GroupRow(Message, frozen=True, kw_only=True):
    """One KV cache group: layers that share a block table.

    ``references``: table entries over its pool, null blocks aside; shared blocks count once per holder.
    ``block_bytes``: one block on one rank, all layers of the group, scales included. ``kind``: full_attention,
    sliding_window, mamba, mla, ... as vLLM names its spec. ``replicated``: each tensor-parallel rank keeps a whole copy
    (MLA), so that bytes must not be added up over ranks.
    """

    group: int
    kind: Name
    pool: Name
    layers: int
    block_tokens: Blocks | None
    block_bytes: Blocks | None
    references: Blocks
    replicated: bool = False


class LeakRow(Message, frozen=True, kw_only=True):
    """Blocks that are orphaned or over-freed, by the request that held them last.

    ``ending``: how that request ended (see ``endings``); "unknown" where nobody was seen to hold them.
    ``age_seconds``: since the request ended, or since the blocks were found where it is not known.
    """

    kind: Name
    pool: Name
    tenant: Name
    session: Name
    request: Name
    ending: Name
    blocks: Blocks
    references: Blocks
    age_seconds: float


class DelayedRow(Message, frozen=True, kw_only=True):
    """Finished requests whose blocks are kept for a connector, by peer and direction (send, receive, deferred).

    ``deferred``: blocks that wait for a step in flight. ``lease_seconds``: after what time the connector gives up by
    itself, None where it never does. ``expired``: blocks of those requests that have waited longer than that.
    """

    peer: Name
    direction: Name
    requests: Blocks
    blocks: Blocks
    oldest_seconds: float
    lease_seconds: float | None
    expired: Blocks


class PinRow(Message, frozen=True, kw_only=True):
    """References that a connector or an offload job holds. ``known``: read from its own books; otherwise they are
    what nothing else explains, and become orphaned at ``orphaned_after_seconds``.
    """

    holder: Name
    pool: Name
    known: bool
    references: Blocks
    oldest_seconds: float | None
    orphaned_after_seconds: float | None


class TenantRow(Message, frozen=True, kw_only=True):
    """One tenant's share. ``held``: blocks, each divided by its reference count; None until first counted.

    ``ended_total`` by ending. ``sessions``: those that are alive or idle for not too long. ``session_idle_seconds``:
    between two turns of one session; ``session_lifetime_seconds``: from its first turn to the end of its last.
    """

    tenant: Name
    running: Blocks
    waiting: Blocks
    held: float | None
    references: Blocks
    requests_total: Blocks
    prompt_tokens_total: Blocks
    generated_tokens_total: Blocks
    preempted_total: Blocks
    ended_total: Annotated[dict[Name, Blocks], msgspec.Meta(max_length=16)]
    sessions: Blocks
    session_lifetime_seconds: Histogram | None = None
    session_idle_seconds: Histogram | None = None


class AllocationRow(Message, frozen=True, kw_only=True):
    """How blocks are obtained. ``block_seconds``: one call that takes blocks out of the free queue.

    ``wait_seconds``: from a request's first refused attempt to its success. ``refused_total``: attempts to admit a
    request that memory refused; ``preempted_total``: running requests put back for memory. ``consecutive_refusals``:
    since blocks were last granted to a waiting request. ``most_retries``: of the waiting request with the most refused
    attempts; ``over_three_retries_total``: requests that were refused more than three times.
    ``waiting_refused``: requests that wait now after a refusal, the oldest since ``oldest_refused_seconds``.
    """

    block_seconds: Histogram
    wait_seconds: Histogram
    blocks_taken_total: Blocks
    blocks_given_back_total: Blocks
    refused_total: Blocks
    preempted_total: Blocks
    consecutive_refusals: Blocks
    most_consecutive_refusals: Blocks
    most_retries: Blocks
    over_three_retries_total: Blocks
    waiting_refused: Blocks
    oldest_refused_seconds: float | None


class WorkRow(Message, frozen=True, kw_only=True):
    """Tokens computed and why. ``rebuilt_preempted_total``: computed before and lost to a preemption;
    ``rebuilt_evicted_total``: in a block hash that this engine had cached and evicted. ``rebuild_seconds_total``: the
    rebuilt tokens' share of the steps that computed them. ``request_seconds``: from a request's admission to the end of
    its blocks. ``tail_slots``: token slots allocated but not filled now. ``steepest_slope``: most blocks per second
    that one running request has taken over the last seconds; ``steepest_request`` whose it is.
    """

    scheduled_tokens_total: Blocks
    prefill_tokens_total: Blocks
    rebuilt_preempted_total: Blocks
    rebuilt_evicted_total: Blocks
    rebuild_seconds_total: float
    request_seconds: Histogram
    tail_slots: Blocks | None
    steepest_slope: float | None
    steepest_request: Name = ""


class SpeculationRow(Message, frozen=True, kw_only=True):
    """Speculative drafts. ``states``: running requests by drafting state. An interruption is a request that ends or is
    preempted with drafts not yet committed; its residue is what stays held of it once it has been cleaned up.
    ``stuck``: requests in one state for longer than ``stuck_after_seconds``.
    """

    drafted_tokens_total: Blocks
    accepted_tokens_total: Blocks
    rounds_total: Blocks
    interruptions_total: Blocks
    residue_blocks_total: Blocks
    states: Annotated[dict[Name, Blocks], msgspec.Meta(max_length=16)]
    stuck: Blocks
    stuck_after_seconds: float


class EncoderRow(Message, frozen=True, kw_only=True):
    """The encoder cache, in encoder tokens. ``orphaned``: entries referenced only by requests that no longer exist."""

    capacity: Blocks
    held: Blocks
    freeable: Blocks
    entries: Blocks
    orphaned_entries: Blocks
    orphaned_tokens: Blocks


class TierRow(Message, frozen=True, kw_only=True):
    """One offload tier (host memory, disk). ``pending``: jobs under way; ``stuck``: those older than
    ``stuck_after_seconds``.
    """

    tier: Name
    capacity: Blocks | None
    used: Blocks | None
    pending: Blocks
    oldest_seconds: float | None
    stuck: Blocks
    stuck_after_seconds: float


class WaitingRow(Message, frozen=True, kw_only=True):
    """Why requests wait: ``reasons`` counts them by reason. ``idle_steps``: steps in a row that scheduled no token
    although requests exist; ``stalled_seconds`` since a token was last scheduled then, None when tokens flow or nothing
    is there to do; ``stalled_by`` what stands in the way.
    """

    reasons: Annotated[dict[Name, Blocks], msgspec.Meta(max_length=32)]
    idle_steps: Blocks
    stalled_seconds: float | None
    stalled_by: Name = ""


Rows = msgspec.Meta(max_length=MAX_ROWS)


class Detail(Message, frozen=True, kw_only=True):
    """All sections at ``monotonic`` (CLOCK_MONOTONIC seconds). ``unsupported`` says why a section is None."""

    monotonic: float
    pools: Annotated[tuple[PoolRow, ...], Rows] | None = None
    groups: Annotated[tuple[GroupRow, ...], Rows] | None = None
    leaks: Annotated[tuple[LeakRow, ...], Rows] | None = None
    delayed: Annotated[tuple[DelayedRow, ...], Rows] | None = None
    pins: Annotated[tuple[PinRow, ...], Rows] | None = None
    tenants: Annotated[tuple[TenantRow, ...], Rows] | None = None
    allocation: AllocationRow | None = None
    work: WorkRow | None = None
    speculation: SpeculationRow | None = None
    encoder: EncoderRow | None = None
    tiers: Annotated[tuple[TierRow, ...], Rows] | None = None
    waiting: WaitingRow | None = None
    unsupported: Annotated[dict[Name, Text], msgspec.Meta(max_length=16)] = msgspec.field(default_factory=dict)
