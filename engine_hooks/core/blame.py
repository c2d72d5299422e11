"""Blame: for each orphaned or over-freed block, the request that held it last, and how that one ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from engine_hooks.core.audit import Audit, Trace
from engine_hooks.core.endings import ENDINGS, RUNNING, UNKNOWN, Ending, Endings, key_of
from engine_hooks.core.marks import Marks
from engine_hooks.core.observers import Context
from engine_hooks.detail import MAX_ROWS, OTHER, LeakRow

SEARCH_PIECES = 12  # stretches of a table looked through per call: about half a millisecond
_DONE = object()
_NOBODY = Marks(tenant=UNKNOWN)


class Blame:
    """Fills ``Detail.leaks``. A name is looked for once for each block, and kept while the block is leaked."""

    HOOK = "blame"
    SECTION = "leaks"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._endings = Endings(context)
        self._named: dict[int, Ending] = {}
        self._search: Iterator[None] | None = None

    def section(self, now: float) -> tuple[LeakRow, ...] | None:
        """Return the leaked blocks of all pools by who held them last; None where nothing is audited."""
        self._context.taps.take_in()
        self._endings.forget_old(now)
        accounts = self._context.accounts
        main = accounts.main.audit
        if main is None or not accounts.main.watched:
            return None
        self._find_names(main, now)
        rows: list[LeakRow] = []
        for pool in (accounts.main, *accounts.others):
            if pool.audit is not None and pool.watched:
                young = pool.pinned_blocks()
                rows += self._rows(pool.view.name, pool.audit, young, now, main=pool is accounts.main)
        rows.sort(key=lambda row: -row.blocks)
        return tuple(rows) if len(rows) <= MAX_ROWS else (*rows[: MAX_ROWS - 2], *_folded(rows[MAX_ROWS - 2 :]))

    def _rows(self, pool: str, audit: Audit, young: set[int], now: float, *, main: bool) -> Iterator[LeakRow]:
        finding = audit.finding
        groups: dict[tuple[str, Ending | None], list[int]] = defaultdict(list)
        for block, by in finding.excess.items():
            if block not in young:
                groups["orphaned" if by > 0 else "over_freed", self._named.get(block) if main else None].append(block)
        for (kind, ending), blocks in groups.items():
            yield LeakRow(
                kind=kind,
                pool=pool,
                tenant=(ending.marks if ending else _NOBODY).tenant,
                session=self._endings.name_of(ending.marks.session) if ending and ending.marks.session else "",
                request=(ending.name or self._endings.name_of(ending.request)) if ending else "",
                ending=ending.how if ending else UNKNOWN,
                blocks=len(blocks),
                references=sum(finding.excess[block] for block in blocks),
                age_seconds=max(0.0, now - (ending.at if ending else min(finding.since[block] for block in blocks))),
            )
        if finding.lost:
            yield _unnamed("orphaned", pool, finding.lost, now - finding.finished)

    def _find_names(self, audit: Audit, now: float) -> None:
        """Name what the audit has found: by what was caught when its owner ended, else by the last passes' tables."""
        found = {*audit.finding.excess, *audit.suspects}
        self._named = {block: ending for block, ending in self._named.items() if block in found}
        for block in found:
            caught = self._endings.caught.get(block)
            if caught is not None:
                self._named[block] = caught
        if self._search is None and audit.sightings:
            blocks, trace = audit.sightings.popleft()
            self._search = self._through(trace, blocks.difference(self._endings.caught), now)
        if self._search is not None:
            for _ in range(SEARCH_PIECES):
                if next(self._search, _DONE) is _DONE:
                    self._search = None
                    break

    def _through(self, trace: Trace, missing: frozenset[int], now: float) -> Iterator[None]:
        """Look for ``missing`` blocks in what the tables held before; an owner that has ended is the likelier one."""
        for request_id, blocks in trace:
            for block in missing.intersection(blocks):
                ending = self._endings.by_request.get(key_of(request_id))
                known = self._named.get(block)
                if ending is not None and (known is None or known.how == RUNNING or known.at <= ending.at):
                    self._named[block] = ending
                elif known is None and (request := self._context.scheduler.requests.get(request_id)) is not None:
                    self._named[block] = Ending(request_id, self._context.marks_of(request), RUNNING, now)
            yield


def _unnamed(kind: str, pool: str, blocks: int, age: float) -> LeakRow:
    return LeakRow(
        kind=kind,
        pool=pool,
        tenant=UNKNOWN,
        session="",
        request="",
        ending=UNKNOWN,
        blocks=blocks,
        references=0,
        age_seconds=max(0.0, age),
    )


def _folded(rows: list[LeakRow]) -> Iterator[LeakRow]:
    """Fold rows into one of each kind."""
    for kind in ("orphaned", "over_freed"):
        chosen = [row for row in rows if row.kind == kind]
        if chosen:
            endings = {row.ending for row in chosen}
            yield LeakRow(
                kind=kind,
                pool=chosen[0].pool,
                tenant=OTHER,
                session="",
                request="",
                ending=endings.pop() if len(endings) == 1 and endings <= {*ENDINGS} else UNKNOWN,
                blocks=sum(row.blocks for row in chosen),
                references=sum(row.references for row in chosen),
                age_seconds=max(row.age_seconds for row in chosen),
            )
