"""What a metric is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric family. ``unit`` is a base unit or what is counted; ``since`` the version that brought it."""

    name: str
    type: Literal["gauge", "counter", "histogram"]
    unit: str
    labels: tuple[str, ...]
    help: str
    since: str = "0.1.0"


ENGINE = ("engine",)
