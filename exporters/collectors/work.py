"""Tokens computed and why."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from engine_hooks.detail import WorkRow
from exporters import catalogue as c
from exporters.collectors.base import Sample, details, known, sound


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield what was computed, what of it for the second time, and how requests use their blocks."""
    for engine, row in _rows(state):
        label = (engine,)
        yield Sample(c.TOKENS_SCHEDULED, label, row.scheduled_tokens_total)
        yield from known(c.REBUILT_TOKENS, (engine, "preempted"), row.rebuilt_preempted_total)
        yield from known(c.REBUILT_TOKENS, (engine, "evicted"), row.rebuilt_evicted_total)
        yield Sample(c.REBUILD_SECONDS, label, row.rebuild_seconds_total)
        if row.prompt_tokens is not None:
            yield from sound(c.PROMPT_TOKENS, label, row.prompt_tokens)


def collect_detail(state: AgentState) -> Iterator[Sample]:
    """Yield what of it was prefill, and how long requests hold their blocks, how well and how fast they fill them."""
    for engine, row in _rows(state):
        label = (engine,)
        yield Sample(c.PREFILL_TOKENS, label, row.prefill_tokens_total)
        yield from sound(c.REQUEST_LIFETIME, label, row.request_seconds)
        yield from known(c.TAIL_WASTE, label, row.tail_slots)
        yield from known(c.GROWTH_MAX, label, row.steepest_slope)


def _rows(state: AgentState) -> Iterator[tuple[str, WorkRow]]:
    for engine, detail in details(state):
        if detail.work is not None:
            yield engine, detail.work
