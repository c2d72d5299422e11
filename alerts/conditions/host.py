"""Host memory, kills, restarts."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import estimate, happened, percent, verdict
from alerts.rule import WHO, Alert
from exporters import catalogue as c

AHEAD_SECONDS = 4 * 3600
ROW = "on (instance, engine, role, rank, what)"
LEVEL = 0.5  # of the limit: what is far below it has time, whatever a line says


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """Return the alerts on hosts and processes."""
    host = policy.host
    sure = f'max without (bound) ({c.HOST_SLOW.name}{{bound="low"}})'
    return (
        Alert(
            name="KvtideHostMemoryGrows",
            condition="host_growth",
            severity="warning",
            expr=verdict("host_growth", "warn"),
            held="5m",
            summary=f"{WHO}: host memory grows",
            description=f"""Host memory of {WHO} on {{{{ $labels.instance }}}} grows by more than
                {percent(host.warn_per_minute)} a minute, or slowly over hours, or stalls near its limit.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideHostMemoryLimit",
            condition="host_growth",
            severity="warning",
            # The forecast goes by minutes; hours must agree that it grows.
            expr=f"""{estimate(c.HOST_LIMIT_TIME)} < {AHEAD_SECONDS}
                and {ROW} {sure} > 0 and {ROW} {c.HOST_LIMIT_USE.name} > {LEVEL}""",
            held="15m",
            summary=f"{WHO}: at its memory limit in {{{{ $value | humanizeDuration }}}}",
            description=f"""Host memory of {WHO} ({{{{ $labels.what }}}}) on {{{{ $labels.instance }}}} grows, over
                hours and over the last minutes; its limit is reached in {{{{ $value | humanizeDuration }}}} (less than
                4 hours).""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideHostMemoryFullSoon",
            condition="host_growth",
            severity="emergency",
            expr=verdict("host_growth", "page"),
            summary=f"{WHO}: host memory runs out",
            description=f"""Host memory of {WHO} on {{{{ $labels.instance }}}} reaches its limit in less than
                {host.limit_seconds / 60:g} minutes, or grows by more than {percent(host.page_per_minute)} a minute. At
                the limit the kernel kills it.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideKilledForMemory",
            condition="oom_kill",
            severity="emergency",
            expr=happened(c.ENGINE_OOM_KILLS, 5),
            keep="10m",
            summary="{{ $labels.engine }}: the kernel killed a process of it for memory",
            description="""{{ $value | humanize }} processes of {{ $labels.engine }} on {{ $labels.instance }} ended
                in the last 5 minutes while the kernel counted kills for memory around them.""",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideRestartLoop",
            condition="restart_loop",
            severity="severe",
            expr=f"{c.ENGINE_RESTARTS.name} >= {host.restarts_page}",
            summary="{{ $labels.engine }}: {{ $value }} restarts in 45 minutes",
            description="""{{ $labels.engine }} on {{ $labels.instance }} has started again {{ $value }} times in 45
                minutes.""",
        ),
    )
