"""What signals say, as immutable values. Rates are a minute, ratios 0..1; None: there is too little to say it.

A value that is None has its reason in ``missing`` where a person would ask for it.
"""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all signal values; they have no cycles, and no collector need look for any."""


class Reading(Value, frozen=True, kw_only=True):
    """What one engine says at one moment, with hooks or without: blocks, requests, and counters that only grow.

    ``hooked``: exact, from hooks; otherwise from the engine's own page, where most is None. ``instance`` changes when
    the engine restarts, and with it all counters begin anew. ``explained``: held blocks that live requests' tables
    have, each once; with ``delayed``, ``deferred``, ``pinned`` and ``orphaned`` they are all that is held.
    ``unaccounted``: held blocks that should not stay: orphaned, or kept beyond their lease.
    ``references``: entries of live requests' tables, shared blocks once for each. ``use_ratio``: held of the pool.
    ``cache_dtype``: of the KV cache as the engine calls it (auto, fp8, fp8_e4m3...), empty where it does not say.
    ``rebuilt_evicted_total``: the part of ``rebuilt_total`` that was lost to evictions. ``repeated_ratio``: of the text
    of recent prompts, repeated; None where the API servers' admission does not look at prompts.
    """

    engine: str
    instance: str
    hooked: bool
    started_at: float | None = None
    capacity: int | None = None
    held: int | None = None
    cached_idle: int | None = None
    explained: int | None = None
    unaccounted: int | None = None
    orphaned: int | None = None
    over_freed: int | None = None
    delayed: int | None = None
    deferred: int | None = None
    pinned: int | None = None
    block_tokens: int | None = None
    block_bytes: int | None = None
    running: int | None = None
    waiting: int | None = None
    steps: int | None = None
    generated_total: int | None = None
    prompt_total: int | None = None
    preempted_total: int | None = None
    refused_total: int | None = None
    waiting_refused: int | None = None
    consecutive_refusals: int | None = None
    rebuilt_total: int | None = None
    rebuilt_preempted_total: int | None = None
    prefill_total: int | None = None
    taken_total: int | None = None
    given_back_total: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    ended_total: int | None = None
    failed_total: int | None = None
    scheduled_total: int | None = None
    references: int | None = None
    use_ratio: float | None = None
    cache_dtype: str = ""
    rebuilt_evicted_total: int | None = None
    repeated_ratio: float | None = None


class Rate(Value, frozen=True, kw_only=True):
    """A share of the pool a minute: the estimate, the ends of its 95 % interval, and what it was made from."""

    per_minute: float
    low: float
    high: float
    seconds: float
    samples: int


class Forecast(Value, frozen=True, kw_only=True):
    """Seconds until the pool is full; ``high`` is None where it may never be. ``condition``: under what it holds."""

    seconds: float
    low: float
    high: float | None
    condition: str


class Slow(Value, frozen=True, kw_only=True):
    """The slow estimate (hours to days) of what stays: two windows, the later one inside the earlier, must agree.

    ``leaks``: both rise and what came stayed. ``staircase``: it comes in steps that never come down, so many.
    """

    per_hour: float
    low: float
    high: float
    later_per_hour: float
    seconds: float
    retained_ratio: float
    leaks: bool
    staircase: int = 0


class EngineSignals(Value, frozen=True, kw_only=True):
    """One engine. ``age_seconds``: since it was first seen or restarted. ``settled``: the grace after that is over.
    ``use_mean_ratio``: ``use_ratio`` over the last half minute.

    ``growth``: of held blocks; ``unexplained``: of what live requests do not account for; ``acceleration``: change of
    growth, a minute squared; ``doubling_seconds``: in which growth doubles. ``floor_ratio``, ``amplitude_ratio``,
    ``period_seconds``: of a saw-tooth of held blocks. ``idle_floor_ratio``: held while nothing runs or waits, for
    ``idle_floor_seconds``. ``in_teeth``: held blocks rise and fall now as they have before.
    ``latency_p99_seconds``: from a request's first refusal to its success, over the last minute;
    ``take_p99_seconds``: of the calls that take blocks. ``harm``: in the last minute something waited for
    memory, was preempted or was refused; None where it can't be told. ``still_seconds``: work is there and no token
    was made. ``tokens_per_running``: generated a second by each running request. ``residue_bytes``: held on behalf of
    interrupted drafts and transfers. ``rebuild_evicted_ratio``: the part of ``rebuild_ratio`` that was lost to
    evictions; ``prefix_hit_times``: the hit ratio against its learned one.
    ``prompt_mean_tokens``, ``long_tail_ratio``: the mean length of the last five minutes' prompts, and the share of
    long ones; ``prompt_times``, ``long_tail_times``: against what is usual.
    ``running_more``: how many more requests run than five minutes ago. ``prompt_spread_times``: the longest prompt of
    five minutes against their mean, at least. ``repeated_ratio``: as in :class:`Reading`. ``kv_p90_bytes``,
    ``kv_p99_bytes``: quantiles of what was held in half an hour, on one rank.
    """

    engine: str
    instance: str
    hooked: bool
    age_seconds: float
    settled: bool
    use_ratio: float | None = None
    use_mean_ratio: float | None = None
    above_warn_seconds: float = 0.0
    above_page_seconds: float = 0.0
    growth: Rate | None = None
    unexplained: Rate | None = None
    acceleration: float | None = None
    doubling_seconds: float | None = None
    growth_above_page_seconds: float = 0.0
    unexplained_above_page_seconds: float = 0.0
    exhaustion: Forecast | None = None
    no_forecast: str = ""
    slow: Slow | None = None
    slow_unexplained: Slow | None = None
    floor_ratio: float | None = None
    amplitude_ratio: float | None = None
    period_seconds: float | None = None
    in_teeth: bool = False
    idle_floor_ratio: float | None = None
    idle_floor_seconds: float = 0.0
    tail_waste_ratio: float | None = None
    blocks_per_running: float | None = None
    bytes_per_generated_token: float | None = None
    preempted_per_minute: float | None = None
    refused_per_minute: float | None = None
    harm: bool | None = None
    rebuild_ratio: float | None = None
    rebuild_cost_ratio: float | None = None
    prefix_hit_ratio: float | None = None
    latency_p99_seconds: float | None = None
    take_p99_seconds: float | None = None
    queue: int | None = None
    queue_above_warn_seconds: float = 0.0
    queue_above_page_seconds: float = 0.0
    failed_ratio: float | None = None
    still_seconds: float | None = None
    tokens_per_second: float | None = None
    tokens_per_running: float | None = None
    taken_per_minute: float | None = None
    given_back_per_minute: float | None = None
    request_p99_seconds: float | None = None
    request_p99_times: float | None = None
    context_mean_tokens: float | None = None
    context_times: float | None = None
    prompt_mean_tokens: float | None = None
    prompt_times: float | None = None
    long_tail_ratio: float | None = None
    long_tail_times: float | None = None
    interruption_ratio: float | None = None
    residue_bytes: int | None = None
    capacity_changed_seconds: float | None = None
    rebuild_evicted_ratio: float | None = None
    prefix_hit_times: float | None = None
    running_more: int | None = None
    prompt_spread_times: float | None = None
    repeated_ratio: float | None = None
    kv_p90_bytes: int | None = None
    kv_p99_bytes: int | None = None
    missing: dict[str, str] = {}


class TenantSignals(Value, frozen=True, kw_only=True):
    """One tenant of one engine. ``share_ratio``: of the pool, shared blocks divided; ``share_times``: against its
    learned share; ``early_share_times``: against that of the first minutes without harm, while none is learned yet;
    ``quota_ratio``: of its quota. ``requests_per_minute`` and ``requests_times`` likewise.
    """

    engine: str
    tenant: str
    share_ratio: float | None = None
    share_per_minute: float | None = None
    share_times: float | None = None
    early_share_times: float | None = None
    quota_ratio: float | None = None
    requests_per_minute: float | None = None
    requests_times: float | None = None
    preempted_per_minute: float | None = None
    waiting: int = 0
    session_median_seconds: float | None = None
    session_times: float | None = None


class AllocatorSignals(Value, frozen=True, kw_only=True):
    """torch's allocator in one process on one device. ``fragmentation``: 1 - largest free block / free, of blocks that
    all share; ``overcommit``: reserved / allocated, without what sleep mode has unmapped. ``growth``: of allocated
    bytes, against the device; ``slow``: the same over hours. ``retries_per_minute``: of the last minute;
    ``ooms_per_hour``: in the last hour. ``flushed``: in the last minute reserved fell by half of what was free: the
    cache was emptied.
    ``age_seconds``: since this process was first seen.
    """

    engine: str
    process: str
    role: str
    rank: int
    pid: int
    gpu: str
    fragmentation: float | None = None
    free_bytes: int | None = None
    largest_free_bytes: int | None = None
    overcommit: float | None = None
    slack_bytes: int | None = None
    allocated_ratio: float | None = None
    growth: Rate | None = None
    slow: Slow | None = None
    retries_per_minute: float | None = None
    ooms_per_hour: float | None = None
    flushed: bool = False
    age_seconds: float = 0.0


class GpuSignals(Value, frozen=True, kw_only=True):
    """One GPU. ``other``: bytes that neither torch nor a KV pool accounts for, by the waterfall: contexts, libraries,
    what nobody names; ``foreign``: those of processes that are not ours. ``growth``: of used bytes; ``other_growth``,
    ``foreign_growth``: of these parts. ``kv_share_ratio``: of the device. ``kv_free_mean_bytes``: of KV pools what
    nothing held, over the last half minute.
    """

    gpu: str
    use_ratio: float | None = None
    above_warn_seconds: float = 0.0
    above_page_seconds: float = 0.0
    kv_share_ratio: float | None = None
    growth: Rate | None = None
    slow: Slow | None = None
    other_bytes: int | None = None
    other_growth: Rate | None = None
    other_slow: Slow | None = None
    foreign_bytes: int | None = None
    foreign_growth: Rate | None = None
    foreign_slow: Slow | None = None
    free_bytes: int | None = None
    kv_free_mean_bytes: float | None = None
    up_seconds: float = 0.0


class HostSignals(Value, frozen=True, kw_only=True):
    """Memory of one engine's process or cgroup. ``what``: cgroup or process. ``limit_seconds``: until the cgroup's
    limit (or the host's end) is reached, where growth is sure; ``limit_ratio``: used of it. Growth is a share of its
    own size. ``age_seconds``: since it was first seen.
    """

    engine: str
    role: str
    rank: int
    what: str
    bytes: int | None = None
    age_seconds: float = 0.0
    growth: Rate | None = None
    slow: Slow | None = None
    limit_bytes: int | None = None
    limit_ratio: float | None = None
    limit_seconds: Forecast | None = None


class NodeSignals(Value, frozen=True, kw_only=True):
    """All signals of a node at one moment."""

    engines: tuple[EngineSignals, ...] = ()
    tenants: tuple[TenantSignals, ...] = ()
    allocators: tuple[AllocatorSignals, ...] = ()
    gpus: tuple[GpuSignals, ...] = ()
    host: tuple[HostSignals, ...] = ()


class Score(Value, frozen=True, kw_only=True):
    """A health score, 0..100. ``scope``: kv, device, host, or engine (the least of what concerns it). ``form``:
    kvtide's own or the textbook's. ``harm``: something waited, was preempted or refused in the last minute. ``tier``:
    how soon somebody has to respond, by the policy in force: warning, severe or emergency; empty where nobody has to.
    """

    scope: str
    engine: str
    gpu: str
    form: str
    value: float
    headroom: float | None = None
    fragmentation_penalty: float = 0.0
    leak_penalty: float = 0.0
    harm: bool | None = None
    tier: str = ""
