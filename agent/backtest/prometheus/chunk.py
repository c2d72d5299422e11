"""One stretch of a history as a Prometheus has it: series by target, and when each target was scraped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.backtest.prometheus import names
from agent.backtest.prometheus.client import Prometheus, Series
from agent.backtest.prometheus.moment import Line


class Target(NamedTuple):
    """What Prometheus reads: the labels that it adds. ``kind``: agent, or the kind of engine whose page it is."""

    kind: str
    job: str
    instance: str

    @property
    def name(self) -> str:
        """What people call it."""
        return " ".join(part for part in (self.job, self.instance) if part) or "prometheus"

    @property
    def host(self) -> str:
        """Its instance without the port."""
        return self.instance.rpartition(":")[0] or self.instance


@dataclass(slots=True)
class Read:
    """One target's stretch. ``scraped``: the time of the sample at each step, in Unix seconds; ``of``: that of each
    engine, scraped engine and GPU, by the metric that says that it is there, and its label.
    """

    scraped: dict[int, float] = field(default_factory=dict)
    of: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict)
    lines: list[tuple[str, Line]] = field(default_factory=list)


AGENT = "agent"
_OWN = ((names.ENGINE, "engine"), (names.SCRAPED, "engine"), (names.GPU, "gpu"))


class Reader:
    """Asks for stretches. ``select``: matchers that narrow all questions; ``kinds``: which targets to read."""

    def __init__(self, prometheus: Prometheus, step: float, select: str, kinds: Iterable[str]) -> None:
        self._prometheus = prometheus
        self._step = step
        self._select = select
        self._kinds = tuple(kinds)

    def read(self, start: float, end: float) -> dict[Target, Read]:
        """Return what there is from ``start`` to ``end``, by target."""
        found: dict[Target, Read] = defaultdict(Read)
        for kind in self._kinds:
            if kind == AGENT:
                self._agents(found, start, end)
            else:
                self._pages(found, kind, start, end)
        return dict(found)

    def _agents(self, found: dict[Target, Read], start: float, end: float) -> None:
        for series in self._ask(names.scraped_at(names.AGENT, self._select, ""), start, end):
            found[_target(AGENT, series)].scraped = self._numbers(series, start)
        if not found:
            return
        for name, label in _OWN:
            for series in self._ask(names.scraped_at(name, self._select, label), start, end):
                whose = (name, series.metric.get(label, ""))
                found[_target(AGENT, series)].of[whose] = self._numbers(series, start)
        for subject in names.SUBJECTS:
            self._take(found, AGENT, self._ask(names.of_subject(subject, self._select), start, end), start)

    def _pages(self, found: dict[Target, Read], kind: str, start: float, end: float) -> None:
        scraped = self._ask(names.scraped_at(names.PAGES[kind], self._select, ""), start, end)
        for series in scraped:
            found[_target(kind, series)].scraped = self._numbers(series, start)
        if scraped:
            self._take(found, kind, self._ask(names.of_pages(kind, self._select), start, end), start)

    def _take(self, found: dict[Target, Read], kind: str, answer: Iterable[Series], start: float) -> None:
        for series in answer:
            read = found.get(_target(kind, series))
            if read is not None:
                line = Line(series.metric, self._numbers(series, start))
                read.lines.append((series.metric.get("__name__", ""), line))

    def _ask(self, query: str, start: float, end: float) -> list[Series]:
        return self._prometheus.range(query, start, end, self._step)

    def _numbers(self, series: Series, start: float) -> dict[int, float]:
        return dict(_steps(series, start, self._step))


def _target(kind: str, series: Series) -> Target:
    return Target(kind, series.metric.get("job", ""), series.metric.get("instance", ""))


def _steps(series: Series, start: float, step: float) -> Iterator[tuple[int, float]]:
    for at, text in series.values:
        try:
            yield round((at - start) / step), float(text)
        except (ValueError, OverflowError):  # not a number, whatever else it is
            continue
