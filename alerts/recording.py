"""Series that are computed once for boards, alerts and autoscalers: by engine, tenant, node and fleet.

The level comes first in their names. ``instance`` is the agent's address, one a node. Ratios of sums, never means of
ratios: a small engine must not weigh as much as a large one.
"""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import ENGINE, JOB, estimate
from alerts.rule import Group, Recording
from exporters import catalogue as c
from exporters.catalogue import Metric

AHEAD_SECONDS = 600  # how far the autoscaler's demand looks ahead: about what a new node takes to serve
TARGET = 0.80  # of the pool: what is above it is a reason for one more


def slow_seconds(policy: Policy) -> float:
    """Return after how long in the queue for memory a request is slow: the policy's time, up to the next bucket."""
    asked, bounds = policy.allocator.latency_page_seconds, c.ADMISSION_WAIT.bounds
    return next((bound for bound in bounds if bound >= asked), bounds[-1])


def groups(policy: Policy) -> tuple[Group, ...]:
    """Return the recording rules for ``policy``."""
    return (_engines(policy), _tenants(), _nodes(), _fleet())


def _engines(policy: Policy) -> Group:
    slow = slow_seconds(policy)
    wait, used, capacity = c.ADMISSION_WAIT.name, c.KV_HELD.name, c.KV_CAPACITY.name
    # Without what has leaked, is kept past its lease, or is pinned by a connector that nobody sees into: a leak by way
    # of one is pinned until it is old enough. The latter two are often not there, and are none then. What was given
    # back twice is still somebody's: it stays in.
    # `without`: whatever else a target's labels are (an operator's `namespace`), both sides must have them to match.
    late = f"sum without (peer, direction) ({c.DELAYED_EXPIRED.name})"
    at_work = f"""clamp_min({used} - {c.KV_ORPHANED.name} - ({c.KV_PINNED.name} or 0 * {used})
        - ({late} or 0 * {used}), 0)"""

    def slow_share(window: str) -> str:
        fast = f'rate({wait}_bucket{{le="{slow!r}"}}[{window}])'
        waited = f"rate({wait}_count[{window}])"
        # Of all that were admitted: one that waits in a hundred that do not is no fault.
        every = f"rate({c.PROMPT_TOKENS.name}_count[{window}])"
        return f"clamp_min({waited} - ignoring (le) {fast}, 0) / ({every} > 0)"

    def quantile(share: float) -> str:
        return f"quantile_over_time({share:g}, {c.KV_HELD_BYTES.name}[30m])"

    return Group(
        "kvtide-recording-engine",
        (
            Recording("engine:kvtide_kv_used:ratio", f"{used} / {capacity}", "Held blocks, as a share of the pool."),
            Recording(
                "engine:kvtide_kv_at_work:ratio",
                f"{at_work} / {capacity}",
                "Held blocks without those that have leaked or may have, as a share of the pool.",
            ),
            Recording(
                "engine:kvtide_kv_orphaned:ratio", f"{c.KV_ORPHANED.name} / {capacity}", "Leaked share of the pool."
            ),
            Recording(
                "engine:kvtide_kv_explained_growth:per_second",
                f"clamp_min({estimate(c.KV_GROWTH)} - clamp_min({estimate(c.KV_UNEXPLAINED_GROWTH)}, 0), 0)",
                "Growth that live requests account for, as a share of the pool.",
            ),
            Recording(
                "engine:kvtide_hook_share:ratio_rate5m",
                f"rate({c.HOOK_SECONDS.name}[5m]) / (rate({c.STEP_SECONDS.name}[5m]) > 0)",
                "What our hooks cost of the engine's own step time.",
            ),
            Recording(
                "engine:kvtide_admission_wait_slow:ratio_rate5m",
                slow_share("5m"),
                f"Of the requests that were admitted, those that had waited more than {slow:g} s for memory.",
            ),
            Recording("engine:kvtide_admission_wait_slow:ratio_rate1h", slow_share("1h"), "The same over an hour."),
            Recording(
                "engine:kvtide_scale_demand:pools",
                # One pool more at most: a ramp-up is no line that goes on for ten minutes.
                f"""engine:kvtide_kv_at_work:ratio
                    + {ENGINE} clamp_max({AHEAD_SECONDS} * engine:kvtide_kv_explained_growth:per_second, 1)
                    or {ENGINE} sum by (instance, engine) (engine:kvtide_kv_at_work:ratio)""",
                "Pools that this engine's live requests will need in ten minutes. What has leaked is not in it, nor "
                "growth that nobody explains: a leak must not buy more nodes.",
            ),
            Recording(
                "engine:kvtide_kv_held_bytes:p90_30m", quantile(0.9), "Held bytes, 90 % quantile of half an hour."
            ),
            Recording(
                "engine:kvtide_kv_held_bytes:p99_30m", quantile(0.99), "Held bytes, 99 % quantile of half an hour."
            ),
        ),
    )


def _tenants() -> Group:
    def total(metric: Metric) -> str:
        return f"sum by (tenant) ({metric.name})"

    def rate(metric: Metric) -> str:
        return f"sum by (tenant) (rate({metric.name}[5m]))"

    return Group(
        "kvtide-recording-tenant",
        (
            Recording(
                "tenant:kvtide_kv_held:blocks", total(c.TENANT_HELD), "KV blocks that a tenant holds, fleet-wide."
            ),
            Recording(
                "tenant:kvtide_quota_use:max",
                f"max by (tenant) ({c.TENANT_QUOTA_USE.name})",
                "The most of its quota that a tenant uses on any engine.",
            ),
            Recording("tenant:kvtide_requests:rate5m", rate(c.TENANT_REQUESTS), "A tenant's requests a second."),
            Recording(
                "tenant:kvtide_preempted:rate5m", rate(c.TENANT_PREEMPTED), "A tenant's requests put back, a second."
            ),
            Recording(
                "tenant:kvtide_tokens:rate5m",
                f"sum by (tenant, kind) (rate({c.TENANT_TOKENS.name}[5m]))",
                "A tenant's tokens a second, by kind: prompt or generated.",
            ),
        ),
    )


def _nodes() -> Group:
    return Group(
        "kvtide-recording-node",
        (
            Recording(
                "node:kvtide_kv_held:bytes", f"sum by (instance) ({c.KV_HELD_BYTES.name})", "KV blocks held on a node."
            ),
            Recording(
                "node:kvtide_kv_used:ratio",
                f"sum by (instance) ({c.KV_HELD.name}) / sum by (instance) ({c.KV_CAPACITY.name})",
                "Held blocks of all engines of a node, as a share of their pools.",
            ),
            Recording(
                "node:kvtide_health:min",
                f'min by (instance) ({c.HEALTH_SCORE.name}{{form="kvtide"}})',
                "The worst health on a node.",
            ),
            Recording(
                "node:kvtide_verdicts:count",
                f'sum by (instance, tier) ({c.VERDICTS.name}{{phase="confirmed"}})',
                "Confirmed verdicts on a node, by who has to know.",
            ),
        ),
    )


def _fleet() -> Group:
    # What kvtide acts on, and so what it must not do node by node: a note asks for nothing.
    confirmed = f'{c.VERDICT.name}{{phase="confirmed",tier!="note"}}'
    return Group(
        "kvtide-recording-fleet",
        (
            Recording("fleet:kvtide_nodes:count", f"count(up{{{JOB}}} == 1)", "Nodes whose agent answers."),
            Recording("fleet:kvtide_kv_held:blocks", f"sum({c.KV_HELD.name})", "KV blocks held in the fleet."),
            Recording("fleet:kvtide_kv_capacity:blocks", f"sum({c.KV_CAPACITY.name})", "KV blocks of all pools."),
            Recording(
                "fleet:kvtide_kv_used:ratio",
                "fleet:kvtide_kv_held:blocks / fleet:kvtide_kv_capacity:blocks",
                "Held blocks of the fleet, as a share of all pools.",
            ),
            Recording(
                "fleet:kvtide_verdict_nodes:ratio",
                f"count by (kind) (max by (instance, kind) ({confirmed})) / scalar(fleet:kvtide_nodes:count)",
                "Share of nodes on which a verdict stands that asks for something: above a fifth it is no fault of one "
                "node.",
            ),
            Recording(
                "fleet:kvtide_scale_demand:pools",
                "sum(engine:kvtide_scale_demand:pools)",
                "Pools needed in ten minutes.",
            ),
            Recording(
                "fleet:kvtide_engines_accounted:count",
                "count(engine:kvtide_kv_at_work:ratio)",
                "Engines whose blocks can be accounted for.",
            ),
            Recording(
                "fleet:kvtide_scale_out:ratio",
                f"fleet:kvtide_scale_demand:pools / ({TARGET} * fleet:kvtide_engines_accounted:count)",
                # Engines count alike: what an autoscaler adds is one more engine, not blocks.
                "Pools needed in ten minutes over pools there are, at four fifths full. Above 1: more are needed; an "
                "autoscaler multiplies its replicas by it.",
            ),
            Recording(
                "fleet:kvtide_scale_out:engines",
                f"""fleet:kvtide_scale_demand:pools / {TARGET}
                    + (count({c.KV_CAPACITY.name} unless engine:kvtide_kv_at_work:ratio) or vector(0))""",
                "How many engines there should be. One whose blocks can't be accounted for counts as one, whatever is "
                "asked of it. Absent where no engine's blocks can be.",
            ),
        ),
    )


def names() -> tuple[Group, ...]:
    """Return the names that people know from incident write-ups, over ours: an optional file."""
    used, capacity = c.KV_HELD.name, c.KV_CAPACITY.name
    fragmentation = c.ALLOCATOR_FRAGMENTATION_RATIO.name
    return (
        Group(
            "kvtide-names",
            (
                Recording("kv_cache_leaked_blocks", c.KV_ORPHANED.name, "Leaked blocks."),
                Recording(
                    "kv_cache_rebuild_ms",
                    f"1000 * rate({c.REBUILD_SECONDS.name}[5m])",
                    "Milliseconds of each second that went into prompt work done before.",
                ),
                Recording(
                    "vllm_gpu_memory_fragmentation",
                    f"max by (instance, engine, device) ({fragmentation})",
                    "1 - largest free block / all free, in torch's allocator.",
                ),
                Recording("fragmentation_rate", f"max by (instance) ({fragmentation})", "The worst of a node."),
                Recording("alloc_latency_99", c.WAIT_P99.name, "Seconds from first refusal to success, p99."),
                Recording("block_frag_ratio", c.KV_TAIL_WASTE.name, "Token slots of held blocks that are not filled."),
                Recording("tenant_block_quota", c.TENANT_QUOTA.name, "A tenant's quota, in blocks."),
                Recording(
                    "effective_utilization",
                    f"({used} - {c.KV_ORPHANED.name}) / {capacity} * (1 - {c.KV_TAIL_WASTE.name})",
                    "Share of the pool that holds tokens of live requests.",
                ),
                Recording(
                    "alloc_failure_rate",
                    f"rate({c.REFUSED.name}[5m])",
                    "Refused attempts to admit a request, a second.",
                ),
            ),
        ),
    )
