"""What each engine can tell beyond its counters."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from agent.state import AgentState
from engine_hooks.detail import Detail
from exporters import catalogue as c
from exporters.collectors.base import Sample, details

_SECTIONS = tuple(field.name for field in msgspec.structs.fields(Detail) if field.default is None)


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield for each section whether the engine tells it."""
    for engine, detail in details(state):
        for name in _SECTIONS:
            yield Sample(c.DETAIL_SUPPORTED, (engine, name), getattr(detail, name) is not None)
