"""What a rule is: it knows one lever, and what to ask of it about which verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent.actions.measure import signals_of, tenants_of
from agent.actions.processes import targets_of
from agent.actions.types import Action, Direction, Expectation, Plan
from agent.policy.actions import Rung
from agent.policy.types import Policy
from agent.retained import NO_TENANT
from agent.signals.types import EngineSignals, TenantSignals
from agent.state import AgentState, EngineState, Verdict
from agent.subject import Subject
from engine_hooks.detail import OTHER

LIVE_RATE_SECONDS = 75.0  # a rate is of the last minute: sooner it says little about what was done


@dataclass(frozen=True, slots=True)
class Case:
    """One verdict that stands, the engine that it is about, and what is in force there by lever."""

    verdict: Verdict
    engine: EngineState
    state: AgentState
    policy: Policy
    in_force: Mapping[str, Action]

    @property
    def signals(self) -> EngineSignals | None:
        """What the engine's numbers mean over time."""
        return signals_of(self.state, self.engine.engine)

    @property
    def tenants(self) -> tuple[TenantSignals, ...]:
        """The engine's tenants that are somebody."""
        known = tenants_of(self.state, self.engine.engine)
        return tuple(each for each in known if each.tenant not in (NO_TENANT, OTHER))

    @property
    def capacity(self) -> int:
        """Blocks of the pool; 0 where it is not known."""
        return self.engine.pool.capacity if self.engine.pool is not None else 0

    @property
    def subject(self) -> Subject:
        """The engine."""
        return Subject(scope="engine", engine=self.engine.engine)

    def expect(self, signal: str, direction: Direction, amount: float, seconds: float | None = None) -> Expectation:
        """Return what the number is to do, within the policy's time where no other is given."""
        within = self.policy.actions.verify_seconds if seconds is None else seconds
        return Expectation(signal=signal, direction=direction, amount=amount, seconds=within)

    def relief(self, share: float) -> Expectation:
        """Return what a throttle is for: fewer preemptions where there are any, else a pool less full by ``share``."""
        thrown = self.signals.preempted_per_minute if self.signals else None
        if thrown:
            return self.expect("preempted_per_minute", "down", 0.2 * thrown, LIVE_RATE_SECONDS)
        return self.expect("use_ratio", "down", share)

    def plan(
        self,
        rung: Rung,
        lever: str,
        arguments: Mapping[str, Any],
        *,
        expected: Expectation | None,
        undo: str,
        subject: Subject | None = None,
    ) -> Plan:
        """Return the plan; where the lever is in force already, its arguments are changed.

        ``arguments``: what the lever takes, see :data:`engine_hooks.levers.orders.Argument`.
        """
        held = self.in_force.get(lever)
        return Plan(
            lever=lever,
            subject=subject or self.subject,
            targets=held.plan.targets if held else targets_of(self.state, self.engine, lever),
            arguments=dict(arguments),
            kind=self.verdict.kind,
            sentence=self.verdict.sentence,
            evidence=self.verdict.evidence,
            expected=expected,
            undo=undo,
            lease_seconds=self.policy.actions.lease_seconds,
            state_at=self.state.at,
            monotonic=self.state.monotonic,
            rung=rung,
            amends=held.id if held else "",
        )


class Rule(Protocol):
    """Makes a plan of a case. ``rung``: its name on the ladder; ``kinds``: the verdicts that it knows a remedy for."""

    rung: Rung
    kinds: frozenset[str]

    def plan(self, case: Case) -> Plan | None:
        """Return what to do; None where this lever has nothing (more) to give here."""
        ...


def of_silent(rule: Rule) -> bool:
    """Whether a rule is for engines that say nothing: its class says ``of_silent = True``. All others need one that
    does.
    """
    return bool(getattr(rule, "of_silent", False))


def priority_of(case: Case) -> dict[str, int | float]:
    """Return the tenants that are held back last, as a lever takes them: a table."""
    return dict.fromkeys(case.policy.admission.priority, 1)
