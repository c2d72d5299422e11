"""One agent's metrics, scrape by scrape, as the states that they were made from, as far as they have them."""

from __future__ import annotations

from agent.backtest.prometheus import names
from agent.backtest.prometheus.chunk import Read
from agent.backtest.prometheus.engines import Engines
from agent.backtest.prometheus.host import host_of
from agent.backtest.prometheus.members import processes_of
from agent.backtest.prometheus.moment import Lines, Moment
from agent.backtest.prometheus.node import Node, sources_of, waterfalls_of
from agent.backtest.prometheus.scraped import scraped_of
from agent.sources.scrape.state import ScrapedState
from agent.state import AgentState, EngineState, LinkState

_OWNER = "engine"
_SAME_SECONDS = 0.5  # samples of one scrape have one time
NO_LINK = LinkState(socket="", connections=0, accepted=0, frames=0, rejected_frames={}, refused_peers={})


class NodeStates:
    """Of one agent; remembers what passes from state to state."""

    def __init__(self) -> None:
        self._engines = Engines()
        self._node = Node()
        self._lines = Lines(())
        self._read = Read()

    def begin(self, read: Read) -> None:
        """Take the next stretch."""
        self._read = read
        self._lines = Lines(read.lines, _OWNER)

    def at(self, step: int, at: float) -> AgentState:
        """Return the state of the scrape of ``at``, which is what Prometheus had at ``step``."""
        rest = self._lines.at(step)
        owned = {name: self._lines.at(step, name) for name in self._lines.owners() if name}
        every = (rest, *owned.values())
        read = self._node.of(rest, every, self._fresh(names.GPU, step, at), at)
        pages = tuple(
            page
            for name in self._fresh(names.SCRAPED, step, at)
            if name in owned and (page := scraped_of(name, owned[name])) is not None
        )
        sources = sources_of(rest)
        up = {each.source for each in sources if each.up}
        return AgentState(
            at=at,
            monotonic=at,
            version=rest.text("kvtide_build_info", "version"),
            started_at=0.0,
            ready=rest.number("kvtide_agent_ready") != 0,
            not_ready_reason="",
            link=NO_LINK,
            engines=self._hooked(owned, step, at),
            unjoined_members=rest.count("kvtide_members_unjoined") or 0,
            sources=sources,
            device=read.devices,
            host=host_of(rest, owned),
            scrape=ScrapedState(engines=pages) if pages or "scrape" in up else None,
            processes=processes_of(rest),
            failures=read.failures,
            failure_counts=read.counts,
            waterfalls=waterfalls_of(every, read.devices),
        )

    def _fresh(self, metric: str, step: int, at: float) -> list[str]:
        """Return whose sample of ``metric`` is of this scrape: what Prometheus carries on from before is not."""
        return sorted(
            label
            for (name, label), times in self._read.of.items()
            if name == metric and (then := times.get(step)) is not None and at - then <= _SAME_SECONDS
        )

    def _hooked(self, owned: dict[str, Moment], step: int, at: float) -> tuple[EngineState, ...]:
        found = (
            self._engines.of(name, owned[name], at) for name in self._fresh(names.ENGINE, step, at) if name in owned
        )
        return tuple(engine for engine in found if engine is not None)
