"""Cases of what write-ups alert on."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import ESTIMATE, E, G, pair
from tests.unit.alerts.promtool import Case, after, of


def level(alert: str, metric: c.Metric, fires: float, quiet: float, **labels: str) -> tuple[Case, ...]:
    """A write-up's alert: a number above a number, for a while."""
    told = {name: value for name, value in labels.items() if name in ("engine", "gpu")}
    return pair(
        alert,
        [of(metric, after(fires, before=quiet), **labels)],
        {"below": [of(metric, quiet, **labels)]},
        **told,
    )


GROWS = [of(c.KV_GROWTH, after(0.1 / 60, before=0), **E, **ESTIMATE)]
TEXTBOOK: tuple[Case, ...] = (
    *level("TextbookDeviceUse", c.GPU_USE, 0.86, 0.85, **G),
    *level("TextbookDeviceUseHigh", c.GPU_USE, 0.96, 0.95, **G),
    *level("TextbookKvShare", c.GPU_KV, 0.81, 0.8, **G),
    *level("TextbookKvShareHigh", c.GPU_KV, 0.91, 0.9, **G),
    *level("TextbookGrowth", c.KV_GROWTH, 0.06 / 60, 0.05 / 60, **E, **ESTIMATE),
    *level("TextbookGrowthFast", c.KV_GROWTH, 0.09 / 60, 0.079 / 60, **E, **ESTIMATE),
    *pair(
        "TextbookAcceleration",
        [of(c.KV_ACCELERATION, 1e-6, **E), *GROWS],
        {"slows down": [of(c.KV_ACCELERATION, -1e-6, **E), *GROWS], "level": [of(c.KV_ACCELERATION, 1e-6, **E)]},
        **E,
    ),
    *pair(
        "TextbookGrowthDoubles",
        [of(c.KV_DOUBLING, 60, **E), *GROWS],
        {"slowly": [of(c.KV_DOUBLING, 600, **E), *GROWS]},
        **E,
    ),
    *level("TextbookKvBytes", c.KV_HELD_BYTES, 9e9, 7e9, **E),
    *level("TextbookKvBytesHigh", c.KV_HELD_BYTES, 13e9, 11e9, **E),
    *level("TextbookQueue", c.REQUESTS_WAITING, 51, 50, **E),
    *level("TextbookQueueLong", c.REQUESTS_WAITING, 101, 100, **E),
    *level("TextbookSessionLong", c.TENANT_SESSION, 121, 120, **E, tenant="t"),
    *level("TextbookSessionVeryLong", c.TENANT_SESSION, 601, 600, **E, tenant="t"),
    *pair(
        "TextbookSawTooth",
        [of(c.KV_AMPLITUDE, 0.4, **E), of(c.KV_FLOOR, 0.5, **E)],
        {"a low floor": [of(c.KV_AMPLITUDE, 0.4, **E), of(c.KV_FLOOR, 0.3, **E)]},
        **E,
    ),
)
