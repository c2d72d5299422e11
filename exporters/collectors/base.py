"""What a collector is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from agent.state import AgentState
from exporters.catalogue import Metric


class Sample(NamedTuple):
    """One value of ``metric``; ``labels`` in the catalogue's order. A value that is not known makes no sample."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


Collect = Callable[[AgentState], Iterator[Sample]]


def known(metric: Metric, labels: tuple[str, ...], value: float | None) -> Iterator[Sample]:
    """Yield a sample, or nothing when the value is not known: absent is not zero."""
    if value is not None:
        yield Sample(metric, labels, value)
