"""From an engine's rows to label sets: each once, and a bounded number of them.

Two samples with the same labels would cost the whole scrape, so no engine's word is relied on for that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from engine_hooks.detail import OTHER

Row = TypeVar("Row")
Labels = TypeVar("Labels", bound=Hashable)

KEPT = 16  # names of one kind per engine; the rest is folded into OTHER


def once(rows: Iterable[Row] | None, key: Callable[[Row], Hashable]) -> Iterator[Row]:
    """Yield the first row of each key."""
    seen = set()
    for row in rows or ():
        if key(row) not in seen:
            seen.add(key(row))
            yield row


def folded(
    rows: Sequence[Row] | None, name: Callable[[Row], str], weight: Callable[[Row], int], more: Callable[[Row], Labels]
) -> dict[tuple[str, Labels], list[Row]]:
    """Return the rows by name and ``more``; all but the weightiest names are called ``OTHER``."""
    if not rows:
        return {}
    weights: Counter[str] = Counter()
    for row in rows:
        weights[name(row)] += weight(row)
    kept = sorted(weights, key=lambda each: (-weights[each], each))[:KEPT]
    groups: dict[tuple[str, Labels], list[Row]] = {}
    for row in rows:
        key = (name(row) if name(row) in kept else OTHER, more(row))
        groups.setdefault(key, []).append(row)
    return groups


def greatest(values: Iterable[float | None]) -> float | None:
    """Return the greatest of the values that are known."""
    return max((value for value in values if value is not None), default=None)


def least(values: Iterable[float | None]) -> float | None:
    """Return the least of the values that are known."""
    return min((value for value in values if value is not None), default=None)
