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
    """Return a sample of a histogram, or nothing when there is none or what came is not one."""
    if value is None or len(value.counts) != len(value.bounds) + 1 or min(value.counts) < 0:
        return ()
    return (Sample(metric, labels, value),) if _rising(value.bounds) else ()


@lru_cache(maxsize=64)
def _rising(bounds: tuple[float, ...]) -> bool:
    return all(lower < upper for lower, upper in pairwise(bounds))


def details(state: AgentState) -> Iterator[tuple[str, Detail]]:
    """Yield the label and the detail of each engine that has told one."""
    for engine in state.engines:
        if engine.detail is not None:
            yield engine.engine, engine.detail
