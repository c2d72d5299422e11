"""What incident write-ups alert on: use and growth alone. For the profile ``textbook``: a busy engine fires it."""

from __future__ import annotations

from dataclasses import replace

from agent.policy.types import Policy
from alerts.exprs import ENGINE, estimate, percent
from alerts.rule import Alert, Group
from exporters import catalogue as c


def groups(policy: Policy) -> tuple[Group, ...]:
    """Return the write-ups' alerts with the numbers of ``policy``."""
    use, growth = policy.use, policy.growth
    per_minute = f"60 * {estimate(c.KV_GROWTH)}"
    alerts = (
        Alert(
            name="TextbookDeviceUse",
            condition="textbook_device_use",
            severity="warning",
            expr=f"{c.GPU_USE.name} > {use.warn_ratio}",
            held=f"{use.warn_seconds:g}s",
            summary="GPU {{ $labels.gpu }}: {{ $value | humanizePercentage }} in use",
            description=f"More than {percent(use.warn_ratio)} of GPU {{{{ $labels.gpu }}}} on "
            f"{{{{ $labels.instance }}}} is in use. With an engine that preallocates its pool this is "
            "always so.",
            board="kvtide-node",
        ),
        Alert(
            name="TextbookDeviceUseHigh",
            condition="textbook_device_use",
            severity="severe",
            expr=f"{c.GPU_USE.name} > {use.page_ratio}",
            held=f"{use.page_seconds:g}s",
            summary="GPU {{ $labels.gpu }}: {{ $value | humanizePercentage }} in use",
            description=f"More than {percent(use.page_ratio)} of GPU {{{{ $labels.gpu }}}} on "
            f"{{{{ $labels.instance }}}} is in use.",
            board="kvtide-node",
        ),
        Alert(
            name="TextbookKvShare",
            condition="textbook_kv_share",
            severity="warning",
            expr=f"{c.GPU_KV.name} > {use.kv_share_warn_ratio}",
            held="1m",
            summary="GPU {{ $labels.gpu }}: the KV pool is {{ $value | humanizePercentage }} of it",
            description="KV pools take {{ $value | humanizePercentage }} of GPU {{ $labels.gpu }} on "
            "{{ $labels.instance }}.",
            board="kvtide-node",
        ),
        Alert(
            name="TextbookKvShareHigh",
            condition="textbook_kv_share",
            severity="severe",
            expr=f"{c.GPU_KV.name} > {use.kv_share_page_ratio}",
            held="1m",
            summary="GPU {{ $labels.gpu }}: the KV pool is {{ $value | humanizePercentage }} of it",
            description="KV pools take {{ $value | humanizePercentage }} of GPU {{ $labels.gpu }} on "
            "{{ $labels.instance }}.",
            board="kvtide-node",
        ),
        Alert(
            name="TextbookGrowth",
            condition="textbook_growth",
            severity="warning",
            expr=f"{per_minute} > {growth.warn_per_minute}",
            held="1m",
            summary="{{ $labels.engine }}: KV grows by {{ $value | humanizePercentage }} a minute",
            description="Held blocks of {{ $labels.engine }} on {{ $labels.instance }} grow by {{ $value | "
            "humanizePercentage }} of the pool a minute.",
        ),
        Alert(
            name="TextbookGrowthFast",
            condition="textbook_growth",
            severity="severe",
            expr=f"{per_minute} > {growth.page_per_minute}",
            held=f"{growth.page_seconds:g}s",
            summary="{{ $labels.engine }}: KV grows by {{ $value | humanizePercentage }} a minute",
            description="Held blocks of {{ $labels.engine }} on {{ $labels.instance }} grow by {{ $value | "
            "humanizePercentage }} of the pool a minute.",
        ),
        Alert(
            name="TextbookAcceleration",
            condition="textbook_acceleration",
            severity="warning",
            expr=f"""{c.KV_ACCELERATION.name} > 0
                and {ENGINE} {per_minute} > {growth.accelerating_per_minute}""",
            held="1m",
            summary="{{ $labels.engine }}: KV grows faster and faster",
            description="The growth of held blocks of {{ $labels.engine }} on {{ $labels.instance }} itself grows.",
        ),
        Alert(
            name="TextbookGrowthDoubles",
            condition="textbook_acceleration",
            severity="severe",
            expr=f"""{c.KV_DOUBLING.name} < {growth.doubling_seconds:g}
                and {ENGINE} {per_minute} > {growth.accelerating_per_minute}""",
            held="1m",
            summary="{{ $labels.engine }}: KV growth doubles in {{ $value | humanizeDuration }}",
            description="The growth of held blocks of {{ $labels.engine }} on {{ $labels.instance }} doubles in "
            "{{ $value | humanizeDuration }}.",
        ),
        Alert(
            name="TextbookKvBytes",
            condition="textbook_kv_bytes",
            severity="warning",
            expr=f"engine:kvtide_kv_held_bytes:p90_30m > {policy.residue.kv_p90_bytes}",
            summary="{{ $labels.engine }}: KV takes {{ $value | humanize1024 }}B, p90",
            description="In nine tenths of the last 30 minutes {{ $labels.engine }} on {{ $labels.instance }} held up "
            "to {{ $value | humanize1024 }}B of KV blocks.",
        ),
        Alert(
            name="TextbookKvBytesHigh",
            condition="textbook_kv_bytes",
            severity="severe",
            expr=f"engine:kvtide_kv_held_bytes:p99_30m > {policy.residue.kv_p99_bytes}",
            summary="{{ $labels.engine }}: KV takes {{ $value | humanize1024 }}B, p99",
            description="In the last 30 minutes {{ $labels.engine }} on {{ $labels.instance }} held up to "
            "{{ $value | humanize1024 }}B of KV blocks, p99.",
        ),
        Alert(
            name="TextbookQueue",
            condition="textbook_queue",
            severity="warning",
            expr=f"{c.REQUESTS_WAITING.name} > {policy.serving.queue_warn}",
            summary="{{ $labels.engine }}: {{ $value }} requests wait",
            description="{{ $value }} requests wait at {{ $labels.engine }} on {{ $labels.instance }}.",
        ),
        Alert(
            name="TextbookQueueLong",
            condition="textbook_queue",
            severity="severe",
            expr=f"{c.REQUESTS_WAITING.name} > {policy.serving.queue_page}",
            summary="{{ $labels.engine }}: {{ $value }} requests wait",
            description="{{ $value }} requests wait at {{ $labels.engine }} on {{ $labels.instance }}.",
        ),
        Alert(
            name="TextbookSessionLong",
            condition="textbook_session",
            severity="warning",
            expr=f"{c.TENANT_SESSION.name} > {policy.tenants.session_warn_seconds:g}",
            held="5m",
            summary="{{ $labels.engine }}: sessions of {{ $labels.tenant }} live {{ $value | humanizeDuration }}",
            description="Half of the sessions of {{ $labels.tenant }} on {{ $labels.engine }} "
            "({{ $labels.instance }}) live longer than {{ $value | humanizeDuration }}.",
            board="kvtide-tenants",
        ),
        Alert(
            name="TextbookSessionVeryLong",
            condition="textbook_session",
            severity="severe",
            expr=f"{c.TENANT_SESSION.name} > {policy.tenants.session_page_seconds:g}",
            held="5m",
            summary="{{ $labels.engine }}: sessions of {{ $labels.tenant }} live {{ $value | humanizeDuration }}",
            description="Half of the sessions of {{ $labels.tenant }} on {{ $labels.engine }} "
            "({{ $labels.instance }}) live longer than {{ $value | humanizeDuration }}.",
            board="kvtide-tenants",
        ),
        Alert(
            name="TextbookSawTooth",
            condition="textbook_saw_tooth",
            severity="warning",
            expr=f"""{c.KV_AMPLITUDE.name} > {policy.residue.tooth_amplitude_ratio}
                and {ENGINE} {c.KV_FLOOR.name} > {policy.residue.tooth_floor_ratio}""",
            held="5m",
            summary="{{ $labels.engine }}: KV rises and falls by {{ $value | humanizePercentage }} of the pool",
            description="Held blocks of {{ $labels.engine }} on {{ $labels.instance }} rise and fall in teeth of "
            "{{ $value | humanizePercentage }}, over a floor that is high.",
        ),
    )
    return (Group("kvtide-textbook", tuple(replace(each, runbook="textbook") for each in alerts)),)
