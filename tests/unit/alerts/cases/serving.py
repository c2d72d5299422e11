"""Cases of what clients feel."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import E, judged, pair
from tests.unit.alerts.promtool import Case, Series, after, between, of, ramp

SERVING: tuple[Case, ...] = (
    *pair(
        "KvtidePreemptionThrash",
        [of(c.REBUILD, after(0.4, before=0), **E), of(c.PREEMPTIONS, 0.1, **E)],
        {
            "few preemptions": [of(c.REBUILD, 0.4, **E), of(c.PREEMPTIONS, 0.03, **E)],
            "cheap ones": [of(c.REBUILD, 0.29, **E), of(c.PREEMPTIONS, 1, **E)],
            "a restart": [of(c.REBUILD, between(0.9, 600, 840, 0), **E), of(c.PREEMPTIONS, 1, **E)],
        },
        **E,
    ),
    *pair(
        "KvtideAllocationSlow",
        [of(c.WAIT_P99, after(0.05, before=0), **E)],
        {"quick": [of(c.WAIT_P99, 0.049, **E)], "a burst": [of(c.WAIT_P99, between(2, 600, 800, 0), **E)]},
        **E,
    ),
    *pair(
        "KvtideLatencyBurn",
        (
            burning := [
                Series(f"{c.ADMISSION_WAIT.name}_bucket", E | {"le": "0.5"}, ramp(0, 0.1)),
                Series(f"{c.ADMISSION_WAIT.name}_count", E, ramp(0, 0.3)),
                Series(f"{c.PROMPT_TOKENS.name}_count", E, ramp(0, 1)),
            ]
        ),
        {
            "one in ten": [*burning[:1], Series(f"{c.ADMISSION_WAIT.name}_count", E, ramp(0, 0.2)), burning[2]],
            "few of many wait": [*burning[:2], Series(f"{c.PROMPT_TOKENS.name}_count", E, ramp(0, 10))],
            "for two minutes": [
                *burning[:1],
                Series(f"{c.ADMISSION_WAIT.name}_count", E, lambda at: 0.1 * at + min(60, max(0, at - 1200) / 2)),
                burning[2],
            ],
            "a restart": [
                Series(each.name, each.labels, lambda at, rate=rate: rate * (at if at < 1200 else at - 1200))
                for each, rate in zip(burning, (0.1, 0.1, 1), strict=True)
            ],
        },
        **E,
    ),
    *judged("KvtideEvictionStorm", "eviction_storm", of(c.REBUILD_EVICTED, 0.3, **E)),
    *judged("KvtideTenantSurge", "tenant_surge", of(c.TENANT_SHARE, 0.5, **E, tenant="t"), tenant="t"),
    *judged("KvtideWorkloadShifted", "workload_shift", of(c.CONTEXT, 9000, **E)),
)
