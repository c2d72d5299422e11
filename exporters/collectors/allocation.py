"""How requests get their blocks."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from engine_hooks.detail import AllocationRow
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known, sound


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield how long blocks take to get, and how often they are refused."""
    for label, row in _rows(state):
        yield from sound(c.ALLOCATION_SECONDS, label, row.block_seconds)
        yield from sound(c.ADMISSION_WAIT, label, row.wait_seconds)
        yield Sample(c.BLOCKS_TAKEN, label, row.blocks_taken_total)
        yield Sample(c.REFUSED, label, row.refused_total)
        yield from known(c.REQUESTS_PREEMPTED, label, row.preempted_total)
        yield Sample(c.WAITING_REFUSED, label, row.waiting_refused)
        yield from known(c.WAITING_REFUSED_OLDEST, label, row.oldest_refused_seconds)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield what came back, and how often requests had to try again."""
    for label, row in _rows(state):
        yield Sample(c.BLOCKS_GIVEN_BACK, label, row.blocks_given_back_total)
        yield Sample(c.REFUSALS_CONSECUTIVE, label, row.consecutive_refusals)
        yield Sample(c.REFUSALS_CONSECUTIVE_MAX, label, row.most_consecutive_refusals)
        yield Sample(c.RETRIES_MAX, label, row.most_retries)
        yield Sample(c.RETRIED_REQUESTS, label, row.over_three_retries_total)


def _rows(state: AgentState) -> Iterator[tuple[tuple[str], AllocationRow]]:
    for engine, detail in details(state):
        if detail.allocation is not None:
            yield (engine,), detail.allocation
