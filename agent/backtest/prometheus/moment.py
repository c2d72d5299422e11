"""The values of one target at one moment, by name and labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from engine_hooks.detail import Histogram

_LARGEST = float(1 << 62)  # no count that can be is larger


class Line(NamedTuple):
    """One series of a target: its labels, and its values by the number of the step."""

    labels: Mapping[str, str]
    values: Mapping[int, float]


class Row(NamedTuple):
    """One series at one moment."""

    labels: Mapping[str, str]
    value: float


class Lines:
    """Series by name, those of one owner (such as an engine) apart from the others: most questions are of one."""

    def __init__(self, lines: Iterable[tuple[str, Line]], owner: str = "") -> None:
        self._owner = owner
        self._lines: dict[str, dict[str, list[Line]]] = {}
        for name, line in lines:
            of = line.labels.get(owner, "") if owner else ""
            self._lines.setdefault(of, {}).setdefault(name, []).append(line)

    def owners(self) -> list[str]:
        """Return the owners' names, sorted; empty for what has none."""
        return sorted(self._lines)

    def at(self, step: int, owner: str = "") -> Moment:
        """Return ``owner``'s values at a step."""
        return Moment(self._lines.get(owner, {}), step)


class Moment:
    """Values at one step. What has no value then is not there; what can't be is not used."""

    def __init__(self, lines: Mapping[str, Iterable[Line]], step: int) -> None:
        self._lines = lines
        self._step = step

    def rows(self, name: str, **labels: str) -> Iterator[Row]:
        """Yield the series called ``name`` that have these labels."""
        for line in self._lines.get(name, ()):
            value = line.values.get(self._step)
            if value is not None and all(line.labels.get(label) == text for label, text in labels.items()):
                yield Row(line.labels, value)

    def number(self, name: str, **labels: str) -> float | None:
        """Return the value of the only such series (of several, the greatest); None where there is none."""
        return max((row.value for row in self.rows(name, **labels) if math.isfinite(row.value)), default=None)

    def count(self, name: str, **labels: str) -> int | None:
        """Return the same as a whole number that is not below zero; None where it can't be one."""
        value = self.number(name, **labels)
        return int(value) if value is not None and 0 <= value < _LARGEST else None

    def flag(self, name: str, **labels: str) -> bool:
        """Return whether such a series says 1."""
        return self.number(name, **labels) == 1

    def by(self, label: str, name: str, **labels: str) -> dict[str, int]:
        """Return the counts of the series called ``name`` by one of their labels."""
        found: dict[str, int] = {}
        for row in self.rows(name, **labels):
            if 0 <= row.value < _LARGEST and row.labels.get(label):
                found[row.labels[label]] = int(row.value)
        return found

    def text(self, name: str, label: str) -> str:
        """Return a label of a series that says something by its labels; empty where it is not there."""
        return next((row.labels.get(label, "") for row in self.rows(name) if row.value == 1), "")

    def histogram(self, name: str, **labels: str) -> Histogram | None:
        """Return a histogram; None where it is not there or is none."""
        buckets = sorted((_bound(row), row.value) for row in self.rows(f"{name}_bucket", **labels))
        total = self.number(f"{name}_sum", **labels)
        bounds, counts = [bound for bound, _ in buckets], [count for _, count in buckets]
        if not buckets or total is None or bounds[-1] != math.inf or not all(map(math.isfinite, bounds[:-1] + counts)):
            return None
        if counts[0] < 0 or any(low > high for low, high in pairwise(counts)):
            return None
        return Histogram(
            bounds=tuple(bounds[:-1]),
            counts=(int(counts[0]), *(int(high - low) for low, high in pairwise(counts))),
            sum=total,
        )


def _bound(row: Row) -> float:
    try:
        return float(row.labels.get("le", ""))
    except ValueError:
        return math.nan
