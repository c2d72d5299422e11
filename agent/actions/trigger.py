"""Looks sooner than once a second where it matters: when an engine reports what would be acted on."""

from __future__ import annotations

from collections.abc import Callable

from agent.engines import EngineTable
from agent.policy.types import Policy
from engine_hooks.wire import Report


class PromptTable(EngineTable):
    """Calls ``soon`` when an engine's report first shows a full pool before which requests wait, or a leaked block.
    ``policy`` gives the one in force: a pool is full at what pages by it.

    Once, until a report shows neither: what goes on is looked at every second anyway.
    """

    def __init__(self, gone_after_periods: float, soon: Callable[[], None], policy: Callable[[], Policy]) -> None:
        super().__init__(gone_after_periods)
        self._soon, self._policy = soon, policy
        self._pressed: set[str] = set()

    def report(self, instance: str, report: Report, now: float) -> None:
        """Take it, and see whether it can't wait."""
        super().report(instance, report, now)
        if not _is_pressing(report, self._policy().use.page_ratio):
            self._pressed.discard(instance)
        elif instance not in self._pressed:
            self._pressed.add(instance)
            self._soon()

    def tick(self, now: float) -> None:
        """Let time pass, and forget those that are gone."""
        super().tick(now)
        if self._pressed:
            self._pressed &= self._engines.keys()


def _is_pressing(report: Report, full: float) -> bool:
    pool = report.pool
    if pool is None or pool.capacity <= 0:
        return False
    return bool(pool.orphaned) or (report.waiting > 0 and pool.held >= full * pool.capacity)
