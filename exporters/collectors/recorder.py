"""The flight recorder and the judge."""

from __future__ import annotations

from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield how recording goes, and what of judging has failed."""
    for judge, errors in sorted(state.judge_errors.items()):
        yield Sample(c.JUDGE_ERRORS, (judge,), errors)
    recorder = state.recorder
    if recorder is None:
        return
    yield Sample(c.RECORDER_UP, (), recorder.recording)
    yield Sample(c.RECORDER_STATES, (), recorder.states_total)
    yield Sample(c.RECORDER_DROPPED, (), recorder.dropped_total)
    yield Sample(c.RECORDER_TORN, (), recorder.torn_total)
    yield Sample(c.RECORDER_BYTES, (), recorder.bytes)
    yield Sample(c.RECORDER_MAX_BYTES, (), recorder.max_bytes)
    yield Sample(c.RECORDER_BUNDLES, (), recorder.bundles_total)
