"""What kvtide does by itself, and when it must not go on doing so."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import happened, minutes
from alerts.rule import Alert
from exporters import catalogue as c

LEAST_NODES = 5  # of fewer, one is a fifth


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """Return the alerts on actions."""
    return (
        Alert(
            name="KvtideBreakerOpen",
            condition="breaker_open",
            severity="severe",
            expr=f"{c.BREAKER_OPEN.name} == 1",
            summary="{{ $labels.instance }}: kvtide has stopped acting",
            description=f"""Actions on {{{{ $labels.instance }}}} failed or did not help
                {policy.actions.breaker_failures}
                times in a row, or more than {policy.actions.budget_per_hour} an hour were wanted. Nothing more is done
                there until a person closes the breaker: kvtide actions close-breaker.""",
            board="kvtide-actions",
        ),
        Alert(
            name="KvtideActionsFail",
            condition="action_ineffective",
            severity="severe",
            expr=happened(c.ACTIONS, 15, 'result=~"failed|lost|expired"'),
            summary="{{ $labels.instance }}: {{ $labels.lever }} {{ $labels.result }}",
            description="""kvtide pulled {{ $labels.lever }} on {{ $labels.instance }} in the last 15 minutes, and {{
                $value }} of these actions ended as {{ $labels.result }}. kvtide actions list says which, and what was
                found.""",
            board="kvtide-actions",
        ),
        Alert(
            name="KvtideActionsBlocked",
            condition="actions_blocked",
            severity="warning",
            expr=f"{c.ACTIONS_BLOCKED.name} == 1",
            held=minutes(900),
            summary="{{ $labels.instance }}: kvtide may act and can't",
            description="An off switch is on at {{ $labels.instance }}, or its journal can't be written: nothing "
            "has been done for 15 minutes.",
            board="kvtide-actions",
        ),
        Alert(
            name="KvtideFleetGuard",
            condition="fleet_guard",
            severity="emergency",
            expr=f"""fleet:kvtide_verdict_nodes:ratio > {policy.actions.fleet_share}
                and on () fleet:kvtide_nodes:count >= {LEAST_NODES}""",
            held="1m",
            summary="{{ $labels.kind }} on {{ $value | humanizePercentage }} of all nodes",
            description="The same verdict, {{ $labels.kind }}, stands on {{ $value | humanizePercentage }} of the "
            "nodes at once. That is a roll-out, a client or a dependency, not a node: do nothing node by node.",
            board="kvtide-fleet",
        ),
        Alert(
            name="KvtidePolicyRefused",
            condition="policy_refused",
            severity="warning",
            expr=f"{c.POLICY_LOADED.name} == 0",
            held="5m",
            summary="{{ $labels.instance }}: the policy in the file was refused",
            description="The agent on {{ $labels.instance }} goes on with the policy before; its log says what is "
            "wrong with the new one.",
            board="kvtide-fleet",
        ),
        Alert(
            name="KvtideEngineIsolated",
            condition="engine_isolated",
            severity="warning",
            expr=f"{c.BALANCER_ISOLATED.name} == 1 and on (instance) {c.BALANCER_ENFORCING.name} == 1",
            summary="{{ $labels.engine }}: gets no new requests",
            description="kvtide has taken {{ $labels.engine }} on {{ $labels.instance }} out of the load "
            "balancer. It comes back by itself, step by step, once its memory is calm.",
            board="kvtide-actions",
        ),
    )
