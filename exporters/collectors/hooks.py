"""What our hooks cost each engine, and what went wrong in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield the health and the price of each engine's hooks."""
    for engine in state.engines:
        hooks = engine.hooks
        if hooks is None:
            continue
        label = (engine.engine,)
        caught = Counter(hooks.errors)
        for member in engine.members:  # those of one role are counted as one
            for hook, errors in member.hook_errors.items():
                caught[f"{member.role}/{hook}"] += errors
        for hook, errors in sorted(caught.items()):
            yield Sample(c.HOOK_ERRORS, (engine.engine, hook), errors)
        yield Sample(c.HOOKS_OFF, label, len(hooks.off) + sum(len(member.hooks_off) for member in engine.members))
        yield Sample(c.FRAMES_DROPPED, label, hooks.dropped_frames)
        yield Sample(c.HOOK_SECONDS, label, hooks.hook_seconds)
        yield Sample(c.STEP_SECONDS, label, hooks.step_seconds)
