"""The pools beside the main one: those of groups that live in host memory, and a connector's own."""

from __future__ import annotations

from engine_hooks.core.observers import Context
from engine_hooks.detail import PoolRow


class Pools:
    """Fills ``Detail.pools``."""

    HOOK = "pools"
    SECTION = "pools"

    def __init__(self, context: Context) -> None:
        self._accounts = context.accounts

    def section(self, _now: float) -> tuple[PoolRow, ...]:
        """Return one row per pool; empty where the engine has only the main one."""
        rows = []
        for pool in self._accounts.others:
            judgement = pool.judge()
            rows.append(
                PoolRow(
                    pool=pool.view.name,
                    capacity=pool.view.capacity(),
                    held=pool.view.held(),
                    orphaned=judgement.orphaned,
                    over_freed=judgement.over_freed,
                    reason=pool.support.reason,
                )
            )
        return tuple(rows)
