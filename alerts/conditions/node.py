"""The agent itself and its eyes; and what must always be heard."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import ENGINE, JOB, enforcing, verdict
from alerts.rule import WHO, Alert
from exporters import catalogue as c


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """Return the alerts on the agent."""
    # The engine's score is the least of all that concerns it; gpu says which GPU that is, and would make a new alert.
    score = f'min without (scope, form, gpu) ({c.HEALTH_SCORE.name}{{scope="engine",form="kvtide"}})'
    # The score has this rule of its own; without harm only leaks and fragments take it below 60, and they have alerts.
    harmed = f"and {ENGINE} {c.HARM.name} == 1"
    told = "{{ $labels.engine }} on {{ $labels.instance }} has a health of {{ $value | humanize }} of 100 points"
    stale = verdict("sensor_stale", "warn", "page", without="scope, phase, tier")
    missing = verdict("engine_missing", "warn", "page")
    return (
        Alert(
            name="KvtideWatchdog",
            condition="watchdog",
            severity="warning",
            expr="vector(1)",
            summary="Alerts get through",
            description="Always fires. Whoever hears it no more knows that alerts do not get through: send it to a "
            "dead man's switch, not to a person.",
            board="kvtide-fleet",
        ),
        Alert(
            name="KvtideAgentDown",
            condition="agent_down",
            severity="warning",
            expr=f"up{{{JOB}}} == 0",
            held="2m",
            summary="{{ $labels.instance }}: the kvtide agent does not answer",
            description="The agent at {{ $labels.instance }} has not answered for 2 minutes. Engines go on without it; "
            "nobody watches their memory, and what it had ordered ends by itself.",
            board="kvtide-fleet",
        ),
        Alert(
            name="KvtideAgentsAbsent",
            condition="agent_down",
            severity="warning",
            expr=f"absent(up{{{JOB}}})",
            held="5m",
            summary="No kvtide agent is scraped at all",
            description="Prometheus has no target with the job kvtide: the scrape configuration has lost them.",
            board="kvtide-fleet",
        ),
        Alert(
            name="KvtideEngineMissing",
            condition="engine_missing",
            severity="warning",
            expr=missing,
            held="1m",
            summary="{{ $labels.engine }} is missing",
            description="{{ $labels.engine }} on {{ $labels.instance }} was here and has been gone or silent for more "
            "than 1 minute, with no successor.",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideEngineMissingEnforcing",
            condition="engine_missing",
            severity="severe",
            expr=f"{missing} and on (instance) {enforcing()}",
            held="1m",
            summary="{{ $labels.engine }} is missing, on a node where kvtide acts",
            description="{{ $labels.engine }} on {{ $labels.instance }} was here and has been gone or silent for more "
            "than 1 minute, with no successor. kvtide acts there by itself, and may have had a part in it.",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideSensorStale",
            condition="sensor_stale",
            severity="warning",
            # The verdict, not kvtide_source_up: a node without GPUs has nothing to read there, and no fault.
            expr=stale,
            held="5m",
            summary="{{ $labels.instance }}: {{ $labels.source }}{{ $labels.engine }} is not read any more",
            description="The agent on {{ $labels.instance }} has not been able to read {{ $labels.source }}{{ "
            "$labels.engine }} for 5 minutes. What it would tell is absent, not zero.",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideSensorStaleEnforcing",
            condition="sensor_stale",
            severity="severe",
            expr=f"{stale} and on (instance) {enforcing()}",
            held="5m",
            summary="{{ $labels.instance }}: {{ $labels.source }}{{ $labels.engine }} is not read where kvtide acts",
            description="The agent on {{ $labels.instance }} acts by itself and has not been able to read {{ "
            "$labels.source }}{{ $labels.engine }} for 5 minutes. It does nothing on what it can't see.",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideMetricImpossible",
            condition="bad_metric",
            severity="warning",
            expr=verdict("bad_metric", "warn", "page"),
            held="10m",
            summary=f"{WHO}: a number that can't be",
            description=f"A source of {WHO} on {{{{ $labels.instance }}}} has told a number that can't be for 10 "
            "minutes. It is not used.",
            board="kvtide-node",
        ),
        Alert(
            name="KvtideConfigMismatch",
            condition="config_mismatch",
            severity="warning",
            expr=verdict("config_mismatch", "warn", "page"),
            held="5m",
            summary="{{ $labels.engine }}: a setting can't work on this card or with this pool",
            description="{{ $labels.engine }} on {{ $labels.instance }} is set up so that it can't work or will run "
            "short: kvtide status says which setting.",
        ),
        Alert(
            name="KvtideHooksOff",
            condition="hooks_off",
            severity="warning",
            expr=f"{c.HOOKS_OFF.name} > 0",
            held="5m",
            summary="{{ $labels.engine }}: {{ $value }} hooks are off",
            description="{{ $value }} hooks in {{ $labels.engine }} on {{ $labels.instance }} were switched off after "
            "repeated errors. The engine is not affected; some of its numbers are absent.",
        ),
        Alert(
            name="KvtideHealthLow",
            condition="health",
            severity="warning",
            expr=f"{score} < {policy.score.warn_below:g}",
            held="5m",
            summary="{{ $labels.engine }}: health {{ $value | humanize }} of 100",
            description=f"{told}, below {policy.score.warn_below:g} for 5 minutes.",
        ),
        Alert(
            name="KvtideHealthSevere",
            condition="health",
            severity="severe",
            expr=f"{score} < {policy.score.severe_below:g} {harmed}",
            held="5m",
            summary="{{ $labels.engine }}: health {{ $value | humanize }} of 100",
            description=f"{told}, below {policy.score.severe_below:g} for 5 minutes.",
        ),
        Alert(
            name="KvtideHealthEmergency",
            condition="health",
            severity="emergency",
            expr=f"{score} < {policy.score.emergency_below:g} {harmed}",
            held="1m",
            summary="{{ $labels.engine }}: health {{ $value | humanize }} of 100",
            description=f"{told}, below {policy.score.emergency_below:g}.",
        ),
    )
