"""What the scrapers report as state: one value per engine, with its label and what is to be thought of it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.sources.scrape import judge
from agent.sources.scrape.families import COUNTERS
from agent.sources.scrape.labels import Labels, Wanted, name_of
from agent.sources.scrape.page import MAX_ROWS, RowKey
from agent.sources.scrape.pool import cannot, pool_of
from agent.sources.scrape.scraper import Report, Seen
from agent.sources.scrape.state import ScrapedEngine
from agent.sources.scrape.targets import Target, TargetKey

logger = logging.getLogger("kvtide.agent")

_NUMBERS = ("running", "waiting", "swapped", *COUNTERS)
_Row = tuple[TargetKey, RowKey | None]


class Engines:
    """Makes the state; keeps the labels, and logs which engines become stale and which are so no more."""

    def __init__(self) -> None:
        self._labels = Labels()
        self._stale: set[str] = set()

    def of(self, targets: Mapping[TargetKey, Target], now: float) -> tuple[tuple[ScrapedEngine, ...], int]:
        """Return the engines by label, and how many there are beyond those. ``now``: on the scrapers' clock."""
        reports = {key: target.scraper.report() for key, target in targets.items()}
        # Before its first page a server stands for itself. In turn: a server with many must not crowd others out.
        of_each: list[list[_Row]] = [
            [(key, row) for row in sorted(report.rows)] or [(key, None)] for key, report in reports.items()
        ]
        rows = [row for turn in itertools.zip_longest(*of_each) for row in turn if row is not None]
        left_out = sum(report.left_out for report in reports.values()) + max(0, len(rows) - MAX_ROWS)
        rows = rows[:MAX_ROWS]
        labels = self._labels.give(_wanted(rows, targets, reports), now)
        engines = [
            _engine(
                targets[key],
                reports[key],
                row,
                label=labels[(*key, *(row or ()))],
                model=self._labels.model(row.model if row else "", now),
                now=now,
            )
            for key, row in rows
        ]
        self._tell(engines)
        return tuple(sorted(engines, key=lambda engine: engine.engine)), left_out

    def _tell(self, engines: Iterable[ScrapedEngine]) -> None:
        # That a page does not come at all, and that it does again, is the scraper's to tell.
        stale = {engine.engine: engine.reason for engine in engines if engine.phase == "stale"}
        for label in stale.keys() - self._stale:
            logger.warning("scraping %s: stale: %s", label, stale[label])
        for label in self._stale & {engine.engine for engine in engines if engine.phase == "up"}:
            logger.info("scraping %s: no longer stale", label)
        self._stale = set(stale)


def _wanted(
    rows: Iterable[_Row], targets: Mapping[TargetKey, Target], reports: Mapping[TargetKey, Report]
) -> Iterator[Wanted]:
    for key, row in rows:
        others = reports[key].rows
        name = name_of(
            given=targets[key].name,
            hint=targets[key].hint,
            model=row.model if row else "",
            models=len({other.model for other in others}),
            rank=row.rank if row else "",
            ranked=row is not None and len({other.rank for other in others if _ranks(other, row)}) > 1,
        )
        yield Wanted((*key, *(row or ())), name)


def _ranks(one: RowKey, other: RowKey) -> bool:
    return one._replace(rank="") == other._replace(rank="")


def _engine(target: Target, report: Report, row: RowKey | None, *, label: str, model: str, now: float) -> ScrapedEngine:
    values: dict[str, Any] = {
        "engine": label,
        "url": target.url,
        "kind": row.kind if row else target.kind,
        "found": "config" if target.pid is None else "process",
        "pid": target.pid,
        "model": model,
        "index": row.rank if row else "",
        "phase": report.phase,
        "reason": report.reason,
        "page_age_seconds": None if report.taken is None else now - report.taken + report.page_age,
        "scrapes": report.scrapes,
        "failures": report.failures,
        "scrape_seconds": report.seconds,
        "bad_values": {},
        "resets": 0,
        "cannot": {},
    }
    if row is not None:
        seen = report.rows[row]
        values |= {"bad_values": seen.bad, "resets": seen.trend.resets}
        if report.phase == "up":
            values |= _said(seen, values["page_age_seconds"])
    return ScrapedEngine(**values)


def _said(seen: Seen, page_age: float) -> dict[str, Any]:
    """Return what a page that was read says of an engine, and what is to be thought of it."""
    reading, trend = seen.reading, seen.trend
    bad = judge.impossible(seen.rejected)
    if why := judge.stale(reading, trend, page_age):
        return {"phase": "stale", "reason": why, "impossible": bad}
    pool = pool_of(reading, seen.info)
    numbers = {name: None if (value := getattr(reading, name)) is None else int(value) for name in _NUMBERS}
    return {
        **numbers,
        **{name: getattr(pool, name) for name in pool.__struct_fields__},
        "usage_ratio": reading.usage,
        "prompt_tokens_per_second": trend.prompt_tokens_per_second,
        "generation_tokens_per_second": trend.generation_tokens_per_second,
        "prefix_hit_ratio": trend.prefix_hit_ratio,
        "growth_per_minute": trend.growth.per_minute if trend.growth else None,
        "growth_acceleration": trend.growth.acceleration if trend.growth else None,
        "impossible": bad,
        "cannot": cannot(pool, reading, rejected=bool(bad)),
    }
