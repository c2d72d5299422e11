"""What of a node can be seen at a moment: not to see something is no proof that its fault has gone."""

from __future__ import annotations

from agent.state import AgentState, EngineState
from agent.subject import Subject


class Seen:
    """The subjects that ``state`` has values of."""

    def __init__(self, state: AgentState) -> None:
        pages = state.scrape.engines if state.scrape else ()
        live = {each.engine for each in state.engines if each.phase == "live"}
        self._engines = live | {each.engine for each in pages if each.phase == "up"}
        self._untold = {
            (kind, each.engine) for each in state.engines if each.phase == "live" for kind in _untold_of(each)
        }
        # What an engine without hooks holds may be no number, see bad_metric.
        self._untold |= {
            (kind, each.engine)
            for each in pages
            if each.phase == "up" and each.usage_ratio is None and each.engine not in live
            for kind in ("kv_orphan", "kv_pressure")
        }
        self._gpus = {gpu.gpu for gpu in state.device.gpus if gpu.up} if state.device else set()
        if state.device:
            self._gpus |= {part.gpu for gpu in state.device.gpus if gpu.up for part in gpu.instances}
        self._members = {
            (engine.engine, f"{member.role}/{member.rank}")
            for engine in state.engines
            for member in engine.members
            if member.up
        } | {("", member.process) for member in state.processes if member.up}
        self._host = state.host is not None

    def has(self, kind: str, subject: Subject) -> bool:
        """Return whether there are values of ``subject`` that a verdict of this kind is made of."""
        if subject.scope in ("engine", "tenant"):
            return subject.engine in self._engines and (kind, subject.engine) not in self._untold
        if subject.scope == "gpu":
            return subject.gpu in self._gpus
        if subject.scope == "process":
            return (subject.engine, subject.process) in self._members
        return self._host if subject.scope == "host" else True


def _untold_of(engine: EngineState) -> list[str]:
    """Return the kinds that an engine which is there can't be judged by now: what its hooks told is stale, or off."""
    pool, detail = engine.pool, engine.detail
    told: dict[str, object] = {
        "kv_over_freed": pool and pool.over_freed,
        "kv_delayed_free": detail and detail.delayed,
        "kv_pinned": detail and detail.pins,
        "spec_residue": detail and detail.speculation,
    }
    if engine.audit_supported:  # elsewhere a leak is inferred
        told["kv_orphan"] = pool and pool.orphaned
    return [kind for kind, value in told.items() if value is None]
