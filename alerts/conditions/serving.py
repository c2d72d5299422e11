"""What clients feel: thrash, latency, storms, tenants."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import ENGINE, percent, verdict
from alerts.recording import slow_seconds
from alerts.rule import Alert
from exporters import catalogue as c

SLOW_BUDGET = 0.01  # one request in a hundred may be slow: latency_page_times its usual time
PREEMPTED_A_MINUTE = 3  # what detectors call thrash; fewer are what a full pool does now and then
BURN = 14.4  # of the month's budget in one hour: 2 %, "The Site Reliability Workbook", chapter 5


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """Return the alerts on serving."""
    slow = slow_seconds(policy)
    return (
        Alert(
            name="KvtidePreemptionThrash",
            condition="preemption_thrash",
            severity="severe",
            expr=f"""{c.REBUILD.name} > {policy.serving.rebuild_page_ratio}
                and {ENGINE} 60 * {c.PREEMPTIONS.name} >= {PREEMPTED_A_MINUTE}""",
            held="5m",
            summary="{{ $labels.engine }}: {{ $value | humanizePercentage }} of prompt work is done again",
            description=f"""{{{{ $labels.engine }}}} on {{{{ $labels.instance }}}} recomputes {{{{ $value |
                humanizePercentage }}}} of its prompt tokens for 5 minutes (more than
                {percent(policy.serving.rebuild_page_ratio)}): memory is taken from requests that are then begun
                anew.""",
        ),
        Alert(
            name="KvtideAllocationSlow",
            condition="allocation_latency",
            severity="warning",
            expr=f"{c.WAIT_P99.name} >= {policy.allocator.latency_warn_seconds}",
            held="5m",
            summary="{{ $labels.engine }}: the slowest requests wait {{ $value | humanizeDuration }} for KV blocks",
            description="""One request in a hundred of {{ $labels.engine }} on {{ $labels.instance }} waits {{ $value |
                humanizeDuration }} between its first refusal and its blocks.""",
        ),
        Alert(
            name="KvtideLatencyBurn",
            condition="latency_burn",
            severity="severe",
            expr=f"""engine:kvtide_admission_wait_slow:ratio_rate1h > {BURN * SLOW_BUDGET:g}
                and engine:kvtide_admission_wait_slow:ratio_rate5m > {BURN * SLOW_BUDGET:g}""",
            summary="{{ $labels.engine }}: {{ $value | humanizePercentage }} of its requests wait too long for memory",
            description=f"""In the last hour and in the last 5 minutes, {{{{ $value | humanizePercentage }}}} of the
                requests of {{{{ $labels.engine }}}} on {{{{ $labels.instance }}}} had waited more than {slow:g} s for
                blocks: at that rate a month's budget of slow requests, 1 %, is gone in two days.""",
        ),
        Alert(
            name="KvtideEvictionStorm",
            condition="eviction_storm",
            severity="warning",
            expr=f"{c.REBUILD_EVICTED.name} and {ENGINE} {verdict('eviction_storm', 'warn', 'page')}",
            held="10m",
            summary="{{ $labels.engine }}: cached prefixes are evicted before they are used again",
            description="""{{ $value | humanizePercentage }} of the prompt work of {{ $labels.engine }} on {{
                $labels.instance }} had been done before and was evicted. The board says which tenant has grown.""",
            board="kvtide-tenants",
        ),
        Alert(
            name="KvtideTenantSurge",
            condition="tenant_surge",
            severity="warning",
            expr=f"""{c.TENANT_SHARE.name}
                and on (instance, engine, tenant) {verdict("tenant_surge", "warn", "page")}""",
            held="10m",
            summary="{{ $labels.engine }}: {{ $labels.tenant }} takes far more than it usually does",
            description="""Tenant {{ $labels.tenant }} holds {{ $value | humanizePercentage }} of the pool of {{
                $labels.engine }} on {{ $labels.instance }}, more than is usual for it or than its quota.""",
            board="kvtide-tenants",
        ),
        Alert(
            name="KvtideWorkloadShifted",
            condition="workload_shift",
            severity="warning",
            expr=f"{c.CONTEXT.name} and {ENGINE} {verdict('workload_shift', 'warn', 'page')}",
            held="15m",
            summary="{{ $labels.engine }}: what is asked of it has changed",
            description="""Contexts, long prompts or repetition on {{ $labels.engine }} ({{ $labels.instance }}) are
                far from what was learned; the mean context is {{ $value | humanize }} tokens. Memory per request is
                another than was planned for.""",
            board="kvtide-efficiency",
        ),
    )
