"""Engines, clocks and nodes that tests of the balancer share."""

from __future__ import annotations

from typing import Any

from agent.actions.types import Refusal
from agent.balancer.balancer import Balancer
from agent.balancer.config import BalancerConfig
from agent.balancer.coordinator import Coordinator, Grant
from agent.balancer.gate import ReadinessGate
from agent.balancer.grants import Grants
from agent.balancer.marks import PersonMark
from agent.balancer.moves import Decide, Move
from agent.policy.types import DEFAULT
from agent.signals.types import EngineSignals, Forecast, NodeSignals, Rate
from agent.state import AgentState, Judgement
from tests.unit.builders import make_engine, make_state

START = 50_000.0


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now + 1_700_000_000.0


class Agrees:
    """A coordinator that says what a test wants: ``answer`` is a grant or what it raises."""

    name = "agrees"

    def __init__(self, answer: Grant | Exception | None = None) -> None:
        self.answer: Grant | Exception = answer or Grant(granted=True, fleet=10, ejected=1)
        self.heard: list[tuple[str, Any]] = []

    async def alive(self, engines: Any) -> None:
        self.heard.append(("alive", tuple(engines)))

    async def grant(self, engine: str) -> Grant:
        self.heard.append(("grant", engine))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def release(self, engine: str) -> None:
        self.heard.append(("release", engine))

    async def close(self) -> None:
        self.heard.append(("close", None))


def rate(per_minute: float) -> Rate:
    return Rate(per_minute=per_minute, low=per_minute * 0.8, high=per_minute * 1.2, seconds=60.0, samples=6)


def signals(unexplained: float | None = 0.0, *, lasts: float = 0.0, **changes: Any) -> EngineSignals:
    """An engine that grows by 10 % a minute, of which ``unexplained`` is nobody's, above the page for ``lasts``."""
    values: dict[str, Any] = {
        "engine": "m",
        "instance": "i1",
        "hooked": True,
        "age_seconds": 1000.0,
        "settled": True,
        "use_ratio": 0.5,
        "growth": rate(0.10),
        "unexplained": None if unexplained is None else rate(unexplained),
        "unexplained_above_page_seconds": lasts,
    }
    return EngineSignals(**values | changes)


def forecast(seconds: float) -> Forecast:
    return Forecast(seconds=seconds, low=seconds * 0.8, high=seconds * 1.2, condition="if it goes on")


class Written:
    """A journal that writes at once, unless the test says ``fails`` or ``waits``. ``before``: of an agent before."""

    def __init__(self, before: bytes | None = b"") -> None:
        self.before = before
        self.fails = self.waits = False
        self.moves: list[Move] = []
        self.waiting: list[Decide] = []
        self.refused: list[tuple[str, str]] = []
        self.last = b""

    @property
    def moved(self) -> list[tuple[str, int]]:
        return [(each.engine, each.now.percent) for each in self.moves]

    def begin(self, move: Move, decide: Decide) -> None:
        if self.waits:
            self.waiting.append(decide)
        elif decide(not self.fails):
            self.moves.append(move)

    def refuse(self, engine: str, refusal: Refusal | None) -> None:
        if refusal is not None:
            self.refused.append((engine, refusal.code))

    def keep(self, body: bytes) -> None:
        self.last = body

    def kept(self) -> bytes | None:
        return self.before


class Node:
    """A balancer with its clock. ``look`` lets ``seconds`` pass, one look a second, as the daemon does."""

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        gate: ReadinessGate | None = None,
        host: str = "node",
        moves: Written | None = None,
        **config: Any,
    ) -> None:
        self.clock, self.host = Clock(), host
        self.stop: Refusal | None = None
        self.marked: PersonMark | None = None
        self.moves = moves or Written()
        self.grants = Grants(coordinator, gate, clock=self.clock)
        values = {"mode": "enforce", "marks_file": "/nonexistent/marks.yaml"} | config
        self.balancer = Balancer(
            BalancerConfig.model_validate(values),
            DEFAULT,
            self.grants,
            stops=lambda engine: self.stop if engine == "m" else None,
            moves=self.moves,
            marked=lambda engine: self.marked if engine == "m" else None,
            clock=self.clock,
        )

    async def look(self, *found: EngineSignals, seconds: int = 1, **state: Any) -> int:
        """Return the percentage that engine m is told at the end."""
        for _ in range(seconds):
            self.clock.now += 1.0
            self.once(self.state(*found, **state), *found)
            await self.grants.once()
        told = self.balancer.told("m")
        return -1 if told is None else told.percent

    def once(self, state: AgentState, *found: EngineSignals) -> None:
        self.balancer.look(state, Judgement(at=state.at, signals=NodeSignals(engines=found)))

    def state(self, *found: EngineSignals, **changes: Any) -> AgentState:
        engines = [
            make_engine(engine=each.engine, instance=each.instance, host=self.host) for each in found if each.hooked
        ]
        return make_state(
            *engines, **{"engines": tuple(engines), "at": self.clock.wall(), "monotonic": self.clock.now} | changes
        )
