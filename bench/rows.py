"""What a benchmark hands back, and how ratios of paired measurements are judged."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

RESAMPLES = 2000
CONFIDENCE = 0.95

T = TypeVar("T")
Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One number. ``budget`` is what it may be at most, None where it is information.

    ``interval`` is the 95 % confidence interval where there is one; the budget is judged on the value.
    """

    name: str
    value: float
    unit: str
    budget: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def ok(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        return None if self.budget is None else self.value <= self.budget

    def as_json(self) -> dict[str, Any]:
        """Return the row as it stands in build/bench.json."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "budget": self.budget,
            "ok": self.ok,
            "interval": self.interval,
        }


def median_ratio(name: str, pairs: Sequence[Pair], budget: float | None = None) -> Row:
    """Return the median of the pairs' ratios, first by second: outliers of a busy machine don't move it."""
    ratios = [a / b for a, b in pairs]
    return Row(name, statistics.median(ratios), "ratio", budget, bootstrap(ratios, statistics.median))


def total_ratio(name: str, pairs: Sequence[Pair]) -> Row:
    """Return the ratio of the sums: has in it what happens in few of the pairs, but every outlier too."""
    return Row(name, _total(pairs), "ratio", interval=bootstrap(pairs, _total))


def _total(pairs: Sequence[Pair]) -> float:
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs)


def bootstrap(sample: Sequence[T], statistic: Callable[[Sequence[T]], float]) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a statistic; the same sample gives the same interval."""
    draw = random.Random(0)
    size = len(sample)
    values = sorted(statistic(draw.choices(sample, k=size)) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return quantile(values, tail), quantile(values, 1 - tail)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value of sorted numbers that ``share`` of them do not exceed (nearest rank)."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as aligned text."""
    lines = [("benchmark", "value", "unit", "95 % interval", "budget", "")]
    for row in rows:
        interval = "" if row.interval is None else f"{row.interval[0]:.4f} .. {row.interval[1]:.4f}"
        budget = "" if row.budget is None else f"<= {row.budget:g}"
        verdict = {None: "", True: "ok", False: "MISSED"}[row.ok]
        lines.append((row.name, _number(row.value), row.unit, interval, budget, verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {unit:<{widths[2]}}  {interval:<{widths[3]}}  "
        f"{budget:<{widths[4]}}  {verdict}".rstrip()
        for name, value, unit, interval, budget, verdict in lines
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}" if value >= 2 else f"{value:.4f}"
