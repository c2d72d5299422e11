"""What a collector is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise

import msgspec

from agent.state import AgentState
from engine_hooks.detail import Detail, Histogram
from exporters.catalogue import Metric


class Sample(msgspec.Struct, frozen=True, gc=False):
    """One value of ``metric``: a histogram where that is its type, else a number. ``labels`` in the catalogue's order.

    A value that is not known makes no sample.
    """

    metric: Metric
    labels: tuple[str, ...]
    value: float | Histogram


Collect = Callable[[AgentState], Iterator[Sample]]


def known(metric: Metric, labels: tuple[str, ...], value: float | None) -> tuple[Sample, ...]:
    """Return a sample, or nothing when the value is not known: absent is not zero."""
    return () if value is None else (Sample(metric, labels, value),)


def sound(metric: Metric, labels: tuple[str, ...], value: Histogram | None) -> tuple[Sample, ...]:
    """Return a sample of a histogram in its metric's buckets, or nothing when there is none or what came is not one."""
    if value is None or len(value.counts) != len(value.bounds) + 1 or min(value.counts) < 0:
        return ()
    return (Sample(metric, labels, _coarse(value, metric.bounds)),) if _rising(value.bounds) else ()


def _coarse(value: Histogram, bounds: tuple[float, ...]) -> Histogram:
    """Return ``value`` with those of its buckets that end at one of ``bounds``, the others added to the next of them.

    A bound that the source does not have is left out: nobody knows what was below it.
    """
    kept, starts = _cuts(value.bounds, bounds or value.bounds)
    if len(kept) == len(value.bounds):
        return value
    counts = tuple(sum(value.counts[start:end]) for start, end in pairwise((*starts, len(value.counts))))
    return Histogram(bounds=kept, counts=counts, sum=value.sum)


@lru_cache(maxsize=64)
def _cuts(bounds: tuple[float, ...], wanted: tuple[float, ...]) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the bounds that stay, and where the bucket of each begins, and that of what lies above."""
    kept = [place for place, bound in enumerate(bounds) if bound in wanted]
    return tuple(bounds[place] for place in kept), (0, *(place + 1 for place in kept))


@lru_cache(maxsize=64)
def _rising(bounds: tuple[float, ...]) -> bool:
    return all(lower < upper for lower, upper in pairwise(bounds))


def details(state: AgentState) -> Iterator[tuple[str, Detail]]:
    """Yield the label and the detail of each engine that has told one."""
    for engine in state.engines:
        if engine.detail is not None:
            yield engine.engine, engine.detail
