"""Whether others than ours use an engine's GPU: what is done to the engine might hit them."""

from __future__ import annotations

from agent.state import AgentState, EngineState

FOREIGN_BYTES = 64 << 20  # less is the driver's own, or a tool that only looks


def neighbours(state: AgentState, engine: EngineState) -> str:
    """Return a GPU of ``engine`` on which a process that is not ours has memory; empty where none is known."""
    uuids = {member.worker.device_uuid for member in engine.members if member.worker is not None}
    gpus = {each.gpu for each in state.waterfalls if each.uuid in uuids - {""}}
    signals = state.judgement.signals.gpus if state.judgement else ()
    return next((each.gpu for each in signals if each.gpu in gpus and (each.foreign_bytes or 0) > FOREIGN_BYTES), "")
