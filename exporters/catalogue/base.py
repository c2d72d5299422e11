"""What a metric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DETAIL_INTERVAL = "60s"  # the page of details is made to be scraped so often


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. ``unit`` is a base unit or what is counted; ``since`` the version that brought it.

    ``detail``: what no alert, recording rule or first look needs; it is on a page of its own, so that a node of many
    GPUs and tenants makes few series. ``bounds``: of a histogram the buckets that are exported; a source that counts by
    more of them is added up. Empty: all.
    """

    name: str
    type: Literal["gauge", "counter", "histogram"]
    unit: str
    labels: tuple[str, ...]
    help: str
    since: str = "0.1.0"
    bounds: tuple[float, ...] = ()
    detail: bool = False

    @property
    def endpoint(self) -> str:
        """The page that it is on."""
        return "/metrics/detail" if self.detail else "/metrics"


ENGINE = ("engine",)
