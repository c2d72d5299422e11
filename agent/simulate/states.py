"""What a simulated engine says, made into the states of an agent: one for each virtual second."""

from __future__ import annotations

from collections.abc import Iterator

from agent.engines import EngineTable
from agent.state import AgentState, LinkState
from engine_hooks import __version__, wire
from engine_hooks.detail import Detail
from engine_hooks.simulator import pipe
from engine_hooks.simulator.clock import MONOTONIC_START

STATE_SECONDS = 1.0
GONE_AFTER_PERIODS = 3.0  # as the agent's configuration has it, where nobody changes it


class States:
    """Takes items in order, and gives the states of the seconds that are over. ``start``: Unix time then."""

    def __init__(self, start: float) -> None:
        self._start = start
        self._table = EngineTable(GONE_AFTER_PERIODS)
        self._instance = ""
        self._next = MONOTONIC_START + STATE_SECONDS
        self._frames = self._connections = 0
        # Of a second's reports only the last is seen, so only that one is decoded.
        self._waiting: dict[int, tuple[float, bytes]] = {}
        self.engine_version = ""

    def take(self, item: pipe.Item) -> Iterator[AgentState]:
        """Take one item; yield the states that were due before it."""
        yield from self._until(item.at)
        if item.kind == pipe.HELLO:
            hello = wire.decode(item.body)
            if isinstance(hello, wire.Hello):
                self._instance, self.engine_version = hello.instance, hello.engine_version
                self._connections += 1
                self._table.hello(hello, hello.pid, item.at)
        elif item.kind in (pipe.REPORT, pipe.DETAIL, pipe.FRAME):
            self._frames += 1
            self._waiting[item.kind] = item.at, item.body
        elif item.kind == pipe.GONE:
            self._decode()
            self._table.disconnected(self._instance, item.at)

    def end(self, now: float) -> Iterator[AgentState]:
        """Yield what is left until ``now``."""
        yield from self._until(now)

    def _until(self, now: float) -> Iterator[AgentState]:
        while now >= self._next:
            self._decode()
            self._table.tick(self._next)
            yield self._state(self._next)
            self._next += STATE_SECONDS

    def _decode(self) -> None:
        for at, body in self._waiting.values():
            message = wire.decode(body)
            if isinstance(message, wire.Report):
                self._table.report(self._instance, message, at)
            elif isinstance(message, Detail):
                self._table.detail(self._instance, message, at)
            elif isinstance(message, wire.Heartbeat):
                self._table.heartbeat(self._instance, message, at)
        self._waiting.clear()

    def _state(self, now: float) -> AgentState:
        unix = self._start + now - MONOTONIC_START
        return AgentState(
            at=unix,
            monotonic=now,
            version=__version__,
            started_at=self._start,
            ready=True,
            not_ready_reason="",
            link=LinkState(
                socket="",
                connections=self._connections,
                accepted=self._connections,
                frames=self._frames,
                rejected_frames={},
                refused_peers={},
            ),
            engines=self._table.states(now, unix),
        )
