"""What the gates look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.actions.measure import engine_of
from agent.actions.types import Action, BreakerState, Mode, Plan, Refusal
from agent.actions.vetoes import Veto
from agent.policy.types import Policy
from agent.state import AgentState, EngineState


@dataclass(frozen=True, slots=True)
class Question:
    """All that the gates look at. ``now``: Unix seconds, ``monotonic`` the same moment; ``minute``: of the local day.

    ``recent``: actions of the last hour and all that have not ended. ``budget_since``: what was done before does not
    count, for a person has closed the breaker since. ``off``: why nothing may be done, empty where it may.
    ``yields``: why by engine, ``""`` for all of them. ``fleet``: the share of nodes by kind; None: there is no word.
    ``own``: of a lever that no process is asked for, why it can't be pulled here, empty where it can; else None.
    ``attempt``: a person only asks what it would do.
    """

    plan: Plan
    policy: Policy
    state: AgentState
    now: float
    monotonic: float
    minute: int
    recent: Sequence[Action]
    breaches: int
    breaker: BreakerState = field(default_factory=BreakerState)
    budget_since: float = 0.0
    off: str = ""
    journal: str = ""
    yields: Mapping[str, str] = field(default_factory=dict)
    fleet: Mapping[str, float] | None = None
    vetoes: Sequence[Veto] = ()
    by_person: bool = False
    own: str | None = None
    attempt: bool = False

    @property
    def engine(self) -> EngineState | None:
        """The engine that the plan is about."""
        return engine_of(self.state, self.plan.subject)

    @property
    def mode(self) -> Mode:
        """How it would be run: a person's order is meant, and no more than that."""
        if self.by_person:
            return "dry-run" if self.attempt else "enforce"
        return self.policy.actions.mode_of(self.plan.lever, self.plan.subject.engine)

    @property
    def done(self) -> tuple[Action, ...]:
        """What the agent itself has begun."""
        return tuple(each for each in self.recent if each.by == "agent")


def refuse(code: str, text: str) -> Refusal:
    """Return a refusal."""
    return Refusal(code=code, text=text)
