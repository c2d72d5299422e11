"""One Prometheus above many, for fleets that one can't hold: what it computes of the shards' own ``fleet:`` series.

It scrapes these alone, by federation; each shard says who it is by the external label ``shard``. Ratios of sums here
too: shards need not be of one size.
"""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.conditions.actions import LEAST_NODES
from alerts.exprs import percent
from alerts.recording import TARGET
from alerts.rule import Alert, Group, Recording

JOB = "kvtide-shards"
MATCH = '{__name__=~"(fleet|tenant):kvtide_.+"}'  # what it asks each shard for


def groups(policy: Policy) -> tuple[Group, ...]:
    """Return the rules of the Prometheus above the shards."""
    return (
        Group(
            "kvtide-global",
            (
                Recording("global:kvtide_nodes:count", "sum(fleet:kvtide_nodes:count)", "Nodes whose agent answers."),
                Recording(
                    "global:kvtide_kv_used:ratio",
                    "sum(fleet:kvtide_kv_held:blocks) / sum(fleet:kvtide_kv_capacity:blocks)",
                    "Held blocks of all shards, as a share of all pools.",
                ),
                Recording(
                    "global:kvtide_verdict_nodes:ratio",
                    """sum by (kind) (fleet:kvtide_verdict_nodes:ratio
                        * on (shard) group_left () fleet:kvtide_nodes:count) / scalar(global:kvtide_nodes:count)""",
                    "Share of all nodes on which a verdict stands that asks for something.",
                ),
                Recording(
                    "global:kvtide_scale_out:ratio",
                    f"sum(fleet:kvtide_scale_demand:pools) / ({TARGET} * sum(fleet:kvtide_engines_accounted:count))",
                    "Pools needed in ten minutes over pools there are, at four fifths full.",
                ),
                Recording(
                    "global:kvtide_scale_out:engines",
                    "sum(fleet:kvtide_scale_out:engines)",
                    "How many engines there should be.",
                ),
                Recording(
                    "global:kvtide_tenant_kv_held:blocks",
                    "sum by (tenant) (tenant:kvtide_kv_held:blocks)",
                    "KV blocks that a tenant holds in all shards.",
                ),
                Alert(
                    name="KvtideGlobalGuard",
                    condition="fleet_guard",
                    severity="emergency",
                    expr=f"""global:kvtide_verdict_nodes:ratio > {policy.actions.fleet_share}
                        and on () global:kvtide_nodes:count >= {LEAST_NODES}""",
                    held="1m",
                    summary="{{ $labels.kind }} on {{ $value | humanizePercentage }} of all nodes of all shards",
                    description=f"""The same verdict, {{{{ $labels.kind }}}}, stands on {{{{ $value | humanizePercentage
                        }}}} of the nodes of all shards at once, more than {percent(policy.actions.fleet_share)}. That
                        is a roll-out, a client or a dependency, not a node: do nothing node by node.""",
                    board="kvtide-fleet",
                ),
                Alert(
                    name="KvtideShardSilent",
                    condition="agent_down",
                    severity="severe",
                    expr=f'up{{job="{JOB}"}} == 0',
                    held="2m",
                    summary="{{ $labels.instance }}: a Prometheus of a shard does not answer",
                    description="""The Prometheus at {{ $labels.instance }} has not answered for 2 minutes: nobody looks
                        after the nodes that it scrapes, and its alerts don't get through.""",
                    board="kvtide-fleet",
                ),
            ),
        ),
    )
