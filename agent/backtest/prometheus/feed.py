"""The history that a Prometheus has: stretch by stretch, target by target, scrape by scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from agent.backtest.prometheus.chunk import AGENT, Read, Reader, Target
from agent.backtest.prometheus.client import MAX_POINTS, Prometheus
from agent.backtest.prometheus.errors import PrometheusError, TooLargeError
from agent.backtest.prometheus.names import PAGES
from agent.backtest.prometheus.node_states import NO_LINK, NodeStates
from agent.backtest.prometheus.pages import Pages
from agent.backtest.span import Span
from agent.bundle.header import Label
from agent.errors import ConfigError
from agent.retained import count_of
from agent.state import AgentState

Metrics = Literal["auto", "kvtide", "engines"]
METRICS: tuple[Metrics, ...] = ("auto", "kvtide", "engines")
POINTS = 240  # of one question: an hour of 15 s. Memory is of one stretch, whatever the range is
MOST_STEPS = 1_000_000  # of a range


class Asked(NamedTuple):
    """What to read: ``step`` in seconds; ``select``: matchers of PromQL that narrow it, such as ``job="kvtide"``.

    ``metrics``: kvtide's own, engines' own pages, or auto: both, but no pages of hosts whose agent tells of engines.
    """

    span: Span
    step: float
    select: str = ""
    metrics: Metrics = "auto"


class PrometheusFeed:
    """See :class:`agent.backtest.run.Feed`. Raises :class:`PrometheusError` where nothing comes."""

    def __init__(self, prometheus: Prometheus, asked: Asked) -> None:
        if (asked.span.end - asked.span.start) / asked.step > MOST_STEPS:
            raise ConfigError(f"--range: more than {MOST_STEPS:,} steps: choose a longer --step")
        self._asked = asked
        kinds = {"kvtide": (AGENT,), "engines": tuple(PAGES), "auto": (AGENT, *PAGES)}[asked.metrics]
        self._reader = Reader(prometheus, asked.step, asked.select, kinds)
        self._shown = prometheus.shown
        self._agents: dict[Target, NodeStates] = {}
        self._pages: dict[Target, Pages] = {}
        self._last: dict[Target, float] = {}
        self._told: set[str] = set()  # hosts whose agent tells of engines
        self._left_out: set[Target] = set()

    def records(self) -> Iterator[tuple[str, AgentState]]:
        """Yield the states of each target in the order of their times, one stretch after the other."""
        asked, points = self._asked, min(POINTS, MAX_POINTS)
        start = asked.span.start
        while start <= asked.span.end:
            end = min(asked.span.end, start + (points - 1) * asked.step)
            try:
                found = self._reader.read(start, end)
            except TooLargeError:
                if points == 1:
                    raise PrometheusError(
                        f"{self._shown}: too much for one answer even of one moment: narrow it with --select"
                    ) from None
                points = max(1, points // 2)
                continue
            yield from self._stretch(found)
            start += points * asked.step

    def labels(self) -> tuple[Label, ...] | None:
        """Return None: a Prometheus does not know what was wrong."""
        return None

    def remarks(self) -> tuple[str, ...]:
        """Return what was passed over, or that there was nothing."""
        told = []
        if not self._last:
            what = {"auto": "kvtide nor of an engine", "kvtide": "kvtide", "engines": "an engine"}[self._asked.metrics]
            told.append(f"{self._shown}: no metric of {'neither ' if ' nor ' in what else ''}{what} in this range")
        if self._left_out:
            pages = count_of(len(self._left_out), "page")
            told.append(f"{pages} of engines left out: an agent on their host tells of engines (--metrics engines)")
        return tuple(told)

    def _stretch(self, found: dict[Target, Read]) -> Iterator[tuple[str, AgentState]]:
        if self._asked.metrics == "auto":
            self._told |= {target.host for target, read in found.items() if target.kind == AGENT and _engines(read)}
        for target in sorted(found):
            if target.kind != AGENT and target.host in self._told:
                self._left_out.add(target)
                continue
            read = found[target]
            begun = False
            for step, at in sorted(read.scraped.items()):
                if not at > self._last.get(target, 0.0):
                    continue  # the same scrape as the step before: nothing new was said, and nothing is made up
                self._last[target] = at
                if not begun:
                    self._begin(target, read)
                    begun = True
                yield target.name, self._state(target, read, step, at)

    def _begin(self, target: Target, read: Read) -> None:
        if target.kind == AGENT:
            self._agents.setdefault(target, NodeStates()).begin(read)
        else:
            self._pages.setdefault(target, Pages(target.name, target.kind)).forget()

    def _state(self, target: Target, read: Read, step: int, at: float) -> AgentState:
        if target.kind == AGENT:
            return self._agents[target].at(step, at)
        return AgentState(
            at=at,
            monotonic=at,
            version="",
            started_at=0.0,
            ready=True,
            not_ready_reason="",
            link=NO_LINK,
            engines=(),
            scrape=self._pages[target].of(read.lines, step, at),
        )


def _engines(read: Read) -> bool:
    """Return whether an agent tells of engines, with hooks or without."""
    return any(name != "kvtide_gpu_up" for name, _ in read.of)
