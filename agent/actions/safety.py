"""What stands between a plan and an engine: gates in a fixed order, the first that refuses is told. Pure.

A person's order passes only those that keep an engine from harm: a person may act at any time and as often as they
like, but not on stale numbers, on two levers at once, or with what the engine does not have.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.actions.gates import lever, pace, standing
from agent.actions.gates.question import Question
from agent.actions.types import Refusal

Gate = Callable[[Question], Refusal | None]

GATES: tuple[Gate, ...] = (
    standing.mode,
    standing.off,
    standing.journal,
    standing.breaker,
    standing.stale,
    standing.windows,
    standing.yields,
    standing.fleet,
    pace.hysteresis,
    pace.busy,
    pace.cooldown,
    lever.unsupported,
    lever.evidence,
    lever.shared_gpu,
    lever.exact,
    lever.veto,
    pace.restarts,
    pace.budget,  # last: what opens the breaker is an action that would have been taken
)
FOR_PERSONS: tuple[Gate, ...] = (
    standing.off,
    standing.journal,
    standing.stale,
    pace.busy,
    lever.unsupported,
    standing.opt_in,
    lever.exact,
)

# The next rung may do where this one may not; any other refusal holds for all that could be done about a verdict.
OF_ONE_LEVER = frozenset({"observe", "window", "unsupported", "evidence", "shared_gpu", "exact", "vetoed"})


def refusal_of(question: Question) -> Refusal | None:
    """Return why the plan is not run now; None where nothing is in its way."""
    for gate in FOR_PERSONS if question.by_person else GATES:
        refusal = gate(question)
        if refusal is not None:
            return refusal
    return None
