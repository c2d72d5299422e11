"""What of a node can be seen at a moment: not to see something is no proof that its fault has gone."""

from __future__ import annotations

from agent.state import AgentState, Subject


class Seen:
    """The subjects that ``state`` has values of."""

    def __init__(self, state: AgentState) -> None:
        pages = state.scrape.engines if state.scrape else ()
        self._engines = {each.engine for each in state.engines if each.phase == "live"}
        self._engines |= {each.engine for each in pages if each.phase == "up"}
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

    def has(self, subject: Subject) -> bool:
        """Return whether there are values of ``subject``."""
        if subject.scope in ("engine", "tenant"):
            return subject.engine in self._engines
        if subject.scope == "gpu":
            return subject.gpu in self._gpus
        if subject.scope == "process":
            return (subject.engine, subject.process) in self._members
        return self._host if subject.scope == "host" else True
