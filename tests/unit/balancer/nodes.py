"""Nodes whose engines leak or ramp up, judged by the real judge second by second, in a time that the test moves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.balancer.balancer import Balancer
from agent.balancer.config import BalancerConfig
from agent.balancer.coordinator import Coordinator
from agent.balancer.grants import Grants
from agent.judge import Judge
from agent.policy.types import DEFAULT
from agent.signals.types import EngineSignals
from agent.state import EngineState
from tests.unit.balancer.made import Clock
from tests.unit.builders import make_engine, make_pool
from tests.unit.timeline import state

CAPACITY = 10_000


@dataclass
class Grows:
    """An engine. A minute, shares of its pool: ``leak`` is what nobody explains, ``ramp`` what live requests take."""

    name: str = "m"
    leak: float = 0.0
    ramp: float = 0.0
    leaked: float = 0.0
    taken: float = 300.0
    steps: int = 0

    def after(self, seconds: int) -> EngineState:
        """Return the engine as it is ``seconds`` later."""
        self.leaked += self.leak * CAPACITY / 60 * seconds
        self.taken = min(0.97 * CAPACITY, self.taken + self.ramp * CAPACITY / 60 * seconds)
        self.steps += 50 * seconds
        held = min(CAPACITY, int(self.taken) + int(self.leaked))
        pool = make_pool(
            capacity=CAPACITY,
            held=held,
            held_min=held,
            held_max=held,
            cached_idle=0,
            empty=CAPACITY - held,
            orphaned=min(CAPACITY, int(self.leaked)),
            over_freed=0,
            ledger_drift=0,
            delayed=0,
            deferred=0,
            pinned=0,
        )
        running = max(1, int(self.taken) // 50)
        return make_engine(
            engine=self.name,
            instance=f"{self.name}-1",
            pool=pool,
            detail=None,
            running=running,
            waiting=0,
            steps=self.steps,
            verdicts=(),
            started_at=1_690_000_000.0,
            members=(),
        )


class GrowingNode:
    """A node with a judge and a balancer. ``signals`` are the last, by engine."""

    def __init__(
        self, clock: Clock, coordinator: Coordinator, *engines: Grows, marks: Path | None = None, **config: Any
    ) -> None:
        self.clock, self.engines = clock, engines
        self.judge = Judge()
        self.grants = Grants(coordinator, clock=clock)
        values = {"mode": "enforce", "marks_file": str(marks or "/nonexistent/marks.yaml")} | config
        self.balancer = Balancer(BalancerConfig.model_validate(values), DEFAULT, self.grants, clock=clock)
        self.signals: dict[str, EngineSignals] = {}

    async def look(self, seconds: int = 1) -> None:
        """Judge what the ``seconds`` that the test has moved the clock by have brought."""
        engines = tuple(engine.after(seconds) for engine in self.engines)
        seen = state(0.0, engines=engines, at=self.clock.wall(), monotonic=self.clock.now)
        judgement = self.judge.look(seen)
        self.signals = {each.engine: each for each in judgement.signals.engines}
        self.balancer.look(seen, judgement)
        await self.grants.once()

    def percent(self, engine: str = "m") -> int:
        """Return what load balancers are told."""
        weight = self.balancer.told(engine)
        return -1 if weight is None else weight.percent
