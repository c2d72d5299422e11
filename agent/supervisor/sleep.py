"""The lever ``sleep``, which nobody pulls: it says why."""

from __future__ import annotations

from agent.actions.types import Outcome, Plan

WHY = (
    "vLLM sleeps only where it was started with --enable-sleep-mode, and is told to by its own development endpoint "
    "(/sleep); it drops its KV cache, and whoever asks meanwhile waits: take restart, or drain it by kvtide node drain"
)


class Sleep:
    """See :class:`agent.actions.own.OwnLever`."""

    def why_not(self, engine: str) -> str:
        """Return the reason."""
        return f"{engine}: {WHY}"

    async def would(self, plan: Plan) -> Outcome:
        """Refuse."""
        return Outcome(target="", code="unsupported", detail=WHY, effect={})

    async def apply(self, plan: Plan) -> Outcome:
        """Refuse."""
        return await self.would(plan)
