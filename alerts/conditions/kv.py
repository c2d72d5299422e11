"""The KV pool: what has leaked, what was given back twice, what is kept too long, what runs out."""

from __future__ import annotations

from agent.policy.types import Policy
from alerts.exprs import ENGINE, estimate, gauge, percent, seen, verdict
from alerts.rule import Alert
from exporters import catalogue as c

ORPHANED_TICKET, ORPHANED_PAGE = 0.005, 0.10  # of the pool
EXHAUSTION_SECONDS = 600
MOSTLY = 0.5  # of the growth that nobody explains
LEASES = 2
STALLED_SECONDS = 60


def alerts(policy: Policy) -> tuple[Alert, ...]:
    """Return the alerts on pools."""
    orphaned = f"{c.KV_ORPHANED.name} / {c.KV_CAPACITY.name}"
    # With the labels of the number, so that it stays one alert where the number comes or goes.
    over_freed = verdict("kv_over_freed", "warn", "page", without="scope, phase, tier, source, kind")
    kept, room = (seen(metric, "kv_delayed_free") for metric in (c.DELAYED_BLOCKS, c.KV_CAPACITY))
    delayed = f"sum by (instance, engine) {kept} / {ENGINE} {room}"
    held = percent(policy.growth.forecast_held_ratio)
    return (
        Alert(
            name="KvtideBlocksOrphaned",
            condition="kv_orphan",
            severity="warning",
            expr=f"{orphaned} > {ORPHANED_TICKET}",
            held="10m",
            summary="{{ $labels.engine }}: {{ $value | humanizePercentage }} of the KV pool has leaked",
            description="""{{ $value | humanizePercentage }} of the KV blocks of {{ $labels.engine }} on {{
                $labels.instance }} are held by no request, for 10 minutes. They come back by a restart or by
                reclaiming them; the board says whose they were.""",
            board="kvtide-leaks",
        ),
        Alert(
            name="KvtideBlocksOrphanedMany",
            condition="kv_orphan",
            severity="emergency",
            expr=f"{orphaned} > {ORPHANED_PAGE}",
            held="1m",
            summary="{{ $labels.engine }}: {{ $value | humanizePercentage }} of the KV pool has leaked",
            description="""{{ $value | humanizePercentage }} of the KV blocks of {{ $labels.engine }} on {{
                $labels.instance }} are held by no request. What is left serves fewer requests at a time; a pool that
                leaks away ends in a standstill.""",
            board="kvtide-leaks",
        ),
        Alert(
            name="KvtideLeakInferred",
            condition="kv_orphan",
            severity="warning",
            # Engines whose blocks nobody can count one by one, and pools beside the main one: there is no number.
            expr=f"{verdict('kv_orphan', 'warn', 'page')} unless {ENGINE} {c.KV_ORPHANED.name} > 0",
            held="10m",
            summary="{{ $labels.engine }}: KV blocks leak, by what can be seen from outside",
            description="""{{ $labels.engine }} on {{ $labels.instance }} has held KV blocks for 10 minutes that its
                requests do not account for: of a pool beside the main one, or of an engine whose blocks can't be
                counted one by one. kvtide status says how much, and what it is inferred from.""",
            board="kvtide-engine",
        ),
        Alert(
            name="KvtideBlocksOverFreed",
            condition="kv_over_freed",
            severity="emergency",
            # Pools beside the main one have no part in the number: there it is 1.
            expr=f"""{seen(c.KV_OVER_FREED, "kv_over_freed")} > 0 and {ENGINE} {over_freed}
                or {ENGINE} {over_freed}""",
            summary="{{ $labels.engine }}: KV blocks were given back twice; answers may be wrong",
            description="""{{ $value }} blocks or more of {{ $labels.engine }} on {{ $labels.instance }} that are in
                use were given back
                once more than they were taken: another request can be given the same memory. Drain and restart this
                engine now.""",
            board="kvtide-leaks",
        ),
        Alert(
            name="KvtideEngineStalled",
            condition="kv_stall",
            severity="emergency",
            expr=f"""{seen(c.STILL, "kv_stall")} >= {STALLED_SECONDS}
                and {ENGINE} {verdict("kv_stall", "warn", "page")}""",
            summary="{{ $labels.engine }}: work, and no token for {{ $value | humanizeDuration }}",
            description="""{{ $labels.engine }} on {{ $labels.instance }} has requests and has made no token for {{
                $value | humanizeDuration }}. Its clients wait for nothing.""",
        ),
        Alert(
            name="KvtidePoolUnderPressure",
            condition="kv_pressure",
            severity="severe",
            expr=f"""{seen(c.KV_USE, "kv_pressure")} and {ENGINE} {verdict("kv_pressure", "page")}
                and {ENGINE} {seen(c.HARM, "kv_pressure")} == 1""",
            held="2m",
            summary="{{ $labels.engine }}: the KV pool is short of blocks, and requests suffer from it",
            description="""{{ $value | humanizePercentage }} of the pool of {{ $labels.engine }} on {{
                $labels.instance }} is held, and for 2 minutes requests have waited for memory, were preempted or were
                refused. A full pool alone does not page.""",
        ),
        Alert(
            name="KvtidePoolExhaustedSoon",
            condition="kv_exhaustion",
            severity="emergency",
            expr=f"""{estimate(c.KV_EXHAUSTION)} < {EXHAUSTION_SECONDS}
                and {ENGINE} {c.KV_USE.name} > {policy.growth.forecast_held_ratio}
                and {ENGINE} {estimate(c.KV_UNEXPLAINED_GROWTH)} > {MOSTLY} * {estimate(c.KV_GROWTH)}
                unless {ENGINE} time() - {c.ENGINE_START.name} < {policy.growth.grace_seconds:g}""",
            held="1m",
            summary="{{ $labels.engine }}: the KV pool is full in {{ $value | humanizeDuration }}, and nobody "
            "asked for it",
            description=f"""More than {held} of the pool of {{{{ $labels.engine }}}} on {{{{ $labels.instance }}}} is
                held, it grows, and live requests explain less than half of that. At this rate it is full in {{{{
                $value | humanizeDuration }}}}.""",
        ),
        Alert(
            name="KvtideTransferKept",
            condition="kv_delayed_free",
            severity="warning",
            expr=f"{c.DELAYED_OLDEST.name} > {LEASES} * {c.DELAYED_LEASE.name}",
            summary="{{ $labels.engine }}: blocks for {{ $labels.peer }} kept for {{ $value | humanizeDuration }}",
            description="""{{ $labels.engine }} on {{ $labels.instance }} keeps blocks of finished requests for
                {{ $labels.peer }} ({{ $labels.direction }}) for {{ $value | humanizeDuration }}, more than twice
                their lease: the signal that would give them back has been lost.""",
            board="kvtide-leaks",
        ),
        Alert(
            name="KvtideTransfersFillPool",
            condition="kv_delayed_free",
            severity="emergency",
            # A tenth of the pool kept for too long; or none of it yet, and so much comes in that the pool is full
            # before the first lease ends.
            expr=f"""{delayed} and {ENGINE} ({verdict("kv_delayed_free", "page")}
                or {verdict("kv_delayed_free", "warn")}
                and {ENGINE} sum by (instance, engine) ({c.DELAYED_EXPIRED.name}) == 0
                and {ENGINE} {c.DELAYED_LEASE.name})""",
            summary="{{ $labels.engine }}: blocks kept for other engines fill the pool",
            description="""{{ $value | humanizePercentage }} of the pool of {{ $labels.engine }} on {{
                $labels.instance }} is kept for transfers. Either a tenth of the pool and more is kept past its lease,
                or at this rate the whole pool is before the first lease ends.""",
            board="kvtide-leaks",
        ),
        Alert(
            name="KvtideBlocksPinned",
            condition="kv_pinned",
            severity="warning",
            expr=f"""max by (instance, engine) ({c.PINNED_OLDEST.name})
                and {ENGINE} {verdict("kv_pinned", "warn", "page")}""",
            held="10m",
            summary="{{ $labels.engine }}: a connector holds KV blocks that nobody can see into",
            description="""A connector of {{ $labels.engine }} on {{ $labels.instance }} has held blocks for {{
                $value | humanizeDuration }}, longer than it should. They count as leaked once they are old enough.""",
            board="kvtide-leaks",
        ),
        Alert(
            name="KvtideResidueLarge",
            condition="spec_residue",
            severity="warning",
            expr=f"sum by (instance) ({gauge(c.KV_RESIDUE)}) > {policy.residue.warn_bytes}",
            held="10m",
            summary="{{ $labels.instance }}: {{ $value | humanize }}B of KV stay after interrupted requests",
            description=f"""Interrupted drafts and cancelled transfers leave {{{{ $value | humanize }}}}B behind on
                {{{{ $labels.instance }}}} for 10 minutes, more than {policy.residue.warn_bytes / 1e6:g} MB.""",
            board="kvtide-leaks",
        ),
    )
