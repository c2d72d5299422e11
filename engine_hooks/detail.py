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
MAX_ROW_TENANTS = 8  # of one delayed row: 64 full ones must fit into a frame
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

    ``references``: table entries over its pool, null blocks aside; shared blocks count once per holder. None where it
    takes too long to count them. ``block_bytes``: what its layers fill of one block on one rank, scales included; the
    pool's block is as large as its largest group needs. ``kind``: full_attention, sliding_window, mamba, mla, ...
    ``copies``: tensor-parallel ranks that keep the same bytes, so that a sum over ranks counts them so often;
    ``replicated``: all of them do (MLA).
    """

    group: int
    kind: Name
    pool: Name
    layers: int
    block_tokens: Blocks | None
    block_bytes: Blocks | None
    references: Blocks | None
    replicated: bool = False
    copies: int = 1


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
    """Blocks that are kept for a transfer, by peer and direction.

    ``send`` and ``receive``: of finished requests, until the connector signals that the peer has read them, or that
    what was under way has arrived. ``loading``: of requests that wait for their KV from elsewhere. ``deferred``: given
    back by their request, but a step in flight may still write them. ``lease_seconds``: after what time the connector
    gives up by itself, None where it never does. ``expired``: blocks that have waited longer than that. ``tenants``:
    blocks by tenant.
    """

    peer: Name
    direction: Name
    requests: Blocks
    blocks: Blocks
    oldest_seconds: float
    lease_seconds: float | None
    expired: Blocks
    tenants: Annotated[dict[Name, Blocks], msgspec.Meta(max_length=MAX_ROW_TENANTS)] = msgspec.field(
        default_factory=dict
    )


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
    """One tenant's share. ``held``: blocks, each divided by its reference count, as they were ``held_age_seconds`` ago;
    None until first counted. ``references``: entries of its tables; shared blocks count once per holder.
    ``quota_blocks``: what the tenant map lets it hold, None without a quota.

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
    quota_blocks: Blocks | None = None
    held_age_seconds: float | None = None


class AllocationRow(Message, frozen=True, kw_only=True):
    """How blocks are obtained. ``block_seconds``: one call that takes blocks out of the free queue, of those
    made in one step of seventeen.

    ``blocks_taken_total``: out of the free queue, by such a call or by a prefix hit. ``wait_seconds``: from a request's
    first refused attempt to its success. ``refused_total``: attempts to admit a request that memory refused;
    ``preempted_total``: running requests put back for memory, None where this vLLM does not show them.
    ``consecutive_refusals``: since blocks were last granted to a waiting request; those of one request count once until
    another has let its blocks go. ``most_retries``: of the waiting request with the most refused attempts, counted so
    too; ``over_three_retries_total``: requests that were refused more than three times. ``waiting_refused``: requests
    that wait now after a refusal, the oldest since ``oldest_refused_seconds``.
    """

    block_seconds: Histogram
    wait_seconds: Histogram
    blocks_taken_total: Blocks
    blocks_given_back_total: Blocks
    refused_total: Blocks
    preempted_total: Blocks | None
    consecutive_refusals: Blocks
    most_consecutive_refusals: Blocks
    most_retries: Blocks
    over_three_retries_total: Blocks
    waiting_refused: Blocks
    oldest_refused_seconds: float | None


class WorkRow(Message, frozen=True, kw_only=True):
    """Tokens computed and why. ``rebuilt_preempted_total``: computed before and lost to a preemption;
    ``rebuilt_evicted_total``: in a block hash that this engine had cached and evicted; None where this vLLM shows no
    preemptions or no evictions. ``rebuild_seconds_total``: the rebuilt tokens' share of the steps that computed them.

    ``prompt_tokens``: lengths of prompts, each counted when its request was first admitted.
    ``request_seconds``: from a request's admission until its blocks were given back, by its end or by a preemption.
    ``tail_slots``: token slots allocated but not filled now. ``steepest_slope``: most blocks per second that one long
    running request has taken over the last ten to twenty seconds, None without one; ``steepest_request`` whose it is (a
    hash).
    """

    scheduled_tokens_total: Blocks
    prefill_tokens_total: Blocks
    rebuilt_preempted_total: Blocks | None
    rebuilt_evicted_total: Blocks | None
    rebuild_seconds_total: float
    request_seconds: Histogram
    tail_slots: Blocks | None
    steepest_slope: float | None
    steepest_request: Name = ""
    prompt_tokens: Histogram | None = None


class SpeculationRow(Message, frozen=True, kw_only=True):
    """Speculative drafts. ``rounds_total``: drafts of one request in one step that were verified; ``drafted`` and
    ``accepted`` are their tokens, those after a request's end aside. ``interruptions_total``: requests that were
    aborted or preempted with drafts not yet verified, so that interruptions / (rounds + interruptions) is their ratio;
    ``residue_blocks_total``: blocks that such a request did not give back when it was cleaned up.

    ``states``: requests by drafting state (drafting, committed, aborted) as seen once a second. ``stuck``: those that
    draft without progress, or were aborted and not cleaned up, for longer than ``stuck_after_seconds``.
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
    """The encoder cache, in encoder tokens. ``held``: entries that requests refer to; ``freeable``: entries kept in
    case they are asked for again; the rest is free. ``orphaned``: held, and only for requests that no longer exist.
    """

    capacity: Blocks
    held: Blocks
    freeable: Blocks
    entries: Blocks
    orphaned_entries: Blocks
    orphaned_tokens: Blocks


class TierRow(Message, frozen=True, kw_only=True):
    """One offload tier (``host`` memory, ``disk``, or as the connector calls it), in blocks of the main pool's size.

    ``used``: what transfers under way hold; ``cached``: copies that may be dropped at any time, None where they can't
    be told from empty blocks. ``pending``: jobs under way; ``stuck``: those older than ``stuck_after_seconds``;
    ``unseen``: jobs beyond the number that is followed. ``abandoned``: pending ones whose result is not wanted any
    more, and whose blocks are held until they end.
    """

    tier: Name
    capacity: Blocks | None
    used: Blocks | None
    pending: Blocks
    oldest_seconds: float | None
    stuck: Blocks
    stuck_after_seconds: float
    cached: Blocks | None = None
    abandoned: Blocks = 0
    unseen: Blocks = 0


class WaitingRow(Message, frozen=True, kw_only=True):
    """Why requests wait: ``reasons`` counts them by reason; ``unseen`` of them were too many to be looked at.

    ``idle_steps``: steps in a row that scheduled no token although requests exist; ``stalled_seconds`` since a token
    was last scheduled then, None when tokens flow, nothing is there to do, or the engine is paused on purpose
    (``stalled_by`` is "paused" then); ``stalled_by`` what stands in the way. ``silent``: running requests that decode
    and have got no token for half a minute in which the engine has taken steps.
    """

    reasons: Annotated[dict[Name, Blocks], msgspec.Meta(max_length=32)]
    idle_steps: Blocks
    stalled_seconds: float | None
    stalled_by: Name = ""
    unseen: Blocks = 0
    silent: Blocks = 0


class CompactionRow(Message, frozen=True, kw_only=True):
    """Live compaction of the main pool. ``state``: idle, moving, releasing, shrunk, growing or stopped; ``reason``: why
    it stopped, why it grows, or why blocks that are wanted back do not come.

    ``offline``: blocks that are out of the pool now, which its capacity is without. ``moved_total``: held blocks that
    were moved, ``moved_idle_total``: cached ones that nobody held; ``dropped_total``: cached ones that were lost by it.
    ``grown_total``: blocks that came back, ``demanded_total`` of them because a request needed them at once.
    ``released_bytes``: memory of the offline blocks that all workers have given back, by the kernel's word; None where
    it can't be. ``pause_seconds``: what one slice of the work took between two steps. ``orders_total``: how often the
    size that the pool is to have was changed by an order, its end, too: by that a reader knows whose state this is.
    """

    state: Name
    reason: Text = ""
    offline: Blocks
    moved_total: Blocks
    moved_idle_total: Blocks
    dropped_total: Blocks
    grown_total: Blocks
    demanded_total: Blocks
    released_bytes: Blocks | None
    pause_seconds: Histogram
    orders_total: Blocks = 0


Rows = msgspec.Meta(max_length=MAX_ROWS)


class Detail(Message, frozen=True, kw_only=True):
    """All sections at ``monotonic`` (CLOCK_MONOTONIC seconds). ``unsupported`` says why a section is None.

    ``transfer_id``: what other engines call this one in their ``peer``; empty without a connector.
    """

    monotonic: float
    transfer_id: Name = ""
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
    compaction: CompactionRow | None = None
    unsupported: Annotated[dict[Name, Text], msgspec.Meta(max_length=32)] = msgspec.field(default_factory=dict)
