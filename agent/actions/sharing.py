"""Whether others than ours use an engine's GPU: what is done to the engine might hit them."""

from __future__ import annotations

from agent.sharing import FOREIGN_BYTES, sharings
from agent.state import AgentState, EngineState


def neighbours(state: AgentState, engine: EngineState) -> str:
    """Return which GPU of ``engine`` others use, too, and how; empty where none is known to be."""
    for each in sharings(state):
        if engine.engine in each.owners and each.shared:
            return f"GPU {each.gpu} is {each}"
    uuids = {member.worker.device_uuid for member in engine.members if member.worker is not None}
    gpus = {each.gpu for each in state.waterfalls if each.uuid in uuids - {""}}
    signals = state.judgement.signals.gpus if state.judgement else ()
    gpu = next((each.gpu for each in signals if each.gpu in gpus and (each.foreign_bytes or 0) > FOREIGN_BYTES), "")
    if gpu:
        return f"others use GPU {gpu}, too"
    # Without the driver's word a worker's own is left.
    served = any(member.worker is not None and member.worker.mps for member in engine.members)
    unseen = state.device is None or not state.device.gpus
    return "its GPU is served by MPS, and who else uses it can't be seen" if served and unseen else ""
