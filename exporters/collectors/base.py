"""What a collector is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

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
    cuts = _cuts(value.bounds, metric.bounds)
    return () if cuts is None else (Sample(metric, labels, _coarse(value, cuts)),)


class _Cuts(NamedTuple):
    """The bounds of a histogram that are exported, and where the counts lie that are added up for each, and above."""

    bounds: tuple[float, ...]
    counts: tuple[slice, ...]


def _coarse(value: Histogram, cuts: _Cuts) -> Histogram:
    """Return ``value`` with those of its buckets that end at one of the bounds, the others added to the next of them.

    A bound that the source does not have is left out: nobody knows what was below it.
    """
    if len(cuts.bounds) == len(value.bounds):
        return value
    counts = value.counts
    return Histogram(bounds=cuts.bounds, counts=tuple([sum(counts[each]) for each in cuts.counts]), sum=value.sum)


@lru_cache(maxsize=64)
def _cuts(bounds: tuple[float, ...], wanted: tuple[float, ...]) -> _Cuts | None:
    """Return what stays of ``bounds``: those that are ``wanted``, all where none is; None where they do not rise."""
    if not all(lower < upper for lower, upper in pairwise(bounds)):
        return None
    kept = [place for place, bound in enumerate(bounds) if bound in (wanted or bounds)]
    ends = (0, *(place + 1 for place in kept), len(bounds) + 1)
    return _Cuts(tuple(bounds[place] for place in kept), tuple(slice(*each) for each in pairwise(ends)))


def details(state: AgentState) -> Iterator[tuple[str, Detail]]:
    """Yield the label and the detail of each engine that has told one."""
    for engine in state.engines:
        if engine.detail is not None:
            yield engine.engine, engine.detail
