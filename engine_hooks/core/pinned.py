"""Pins: references that connectors hold themselves; the known by their books, the unknown by what nothing explains."""

from __future__ import annotations

from collections.abc import Hashable

from engine_hooks.core.observers import Context
from engine_hooks.detail import PinRow


class Pinned:
    """Fills ``Detail.pins``."""

    HOOK = "pinned"
    SECTION = "pins"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._since: dict[tuple[str, str, Hashable], float] = {}

    def section(self, now: float) -> tuple[PinRow, ...]:
        """Return one row per holder and pool; a known holder that holds nothing has a row of zero."""
        since: dict[tuple[str, str, Hashable], float] = {}
        rows: list[PinRow] = []
        accounts = self._context.accounts
        for pool in (accounts.main, *accounts.others):
            for source in pool.view.pins:
                references, oldest = 0, None
                for key, blocks in source.pinned(pool.view.pool):
                    job = (source.holder, pool.view.name, key)
                    since[job] = self._since.get(job, now)
                    references += len(blocks)
                    oldest = since[job] if oldest is None else min(oldest, since[job])
                rows.append(
                    PinRow(
                        holder=source.holder,
                        pool=pool.view.name,
                        known=True,
                        references=references,
                        oldest_seconds=None if oldest is None else now - oldest,
                        orphaned_after_seconds=None,
                    )
                )
        self._since = since
        main = accounts.main
        if main.view.unknown_pinners and main.audit is not None:
            finding, young = main.audit.finding, main.pinned_blocks()
            rows.append(
                PinRow(
                    holder="+".join(main.view.unknown_pinners)[:64],
                    pool=main.view.name,
                    known=False,
                    references=main.judge().pinned or 0,
                    oldest_seconds=now - min(finding.since[block] for block in young) if young else None,
                    orphaned_after_seconds=self._context.settings.pin_seconds,
                )
            )
        return tuple(rows)
