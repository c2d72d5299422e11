"""Plans, what became of them, and why others were refused. Values only.

A plan says what, on whom, why, with which expected effect and how it is undone. Who makes it knows no clock and does no
I/O; who runs it asks nobody why.
"""

from __future__ import annotations

from typing import Literal

from agent.subject import Subject, Value
from engine_hooks.levers.orders import Argument

# observe: nothing is planned. dry-run: the full path, and each process is asked what it would do. enforce: it is done.
Mode = Literal["observe", "dry-run", "enforce"]
# intent: in the journal, not sent yet. sent: no answer yet. in_force: done, with a lease that is renewed. done: done,
# with nothing to take back. would: a dry-run's end. The rest: how it ended.
Phase = Literal[
    "intent", "sent", "in_force", "done", "would", "undoing", "undone", "expired", "refused", "failed", "lost"
]
Direction = Literal["down", "up"]
# not_yet: still measured. helped, did_not: the number moved as expected, or did not. unknown: it can't be seen.
Verified = Literal["not_yet", "helped", "did_not", "unknown"]

LIVE_PHASES: frozenset[Phase] = frozenset({"intent", "sent", "in_force", "undoing"})


class Expectation(Value, frozen=True, kw_only=True):
    """The number that the action is for: ``signal`` (a name of :mod:`agent.actions.measure`) is to go ``direction``
    by at least ``amount`` (in the signal's unit) within ``seconds``.
    """

    signal: str
    direction: Direction
    amount: float
    seconds: float


class Plan(Value, frozen=True, kw_only=True):
    """One pull of one lever. ``subject``: on whom; ``targets``: the instances of the processes that must all do it, or
    none of them. Empty for a lever of the agent itself, such as a weight at the load balancer.

    ``kind``, ``sentence`` and ``evidence`` are the verdict's that asks for it. ``undo`` says how it is taken back.
    ``state_at``: Unix time of the state that it was made from; ``monotonic``: the same moment by the clock that never
    jumps. ``rung``: the rule that made it, empty for a person's. ``amends``: the action in force whose arguments it
    changes; it has no lease of its own then.
    """

    lever: str
    subject: Subject
    targets: tuple[str, ...]
    arguments: dict[str, Argument]
    kind: str
    sentence: str
    evidence: dict[str, float]
    expected: Expectation | None
    undo: str
    lease_seconds: float
    state_at: float
    monotonic: float
    rung: str = ""
    amends: str = ""


class Refusal(Value, frozen=True, kw_only=True):
    """Why a plan is not run now. ``code``: one of :data:`REFUSALS`; ``text`` is for people."""

    code: str
    text: str


REFUSALS = (
    "observe",  # the mode of this lever on this scope
    "hysteresis",  # not breached often enough in a row
    "cooldown",  # the same lever on the same scope, too soon
    "budget",  # the hour's actions are used up
    "busy",  # another lever is being pulled on this scope
    "stale",  # the state is older than it may be
    "breaker",  # open until a person closes it
    "switched_off",  # the node's or the fleet's off switch
    "window",  # outside its window, or inside a maintenance
    "yield",  # a person drains this engine, or rolls it out
    "fleet",  # the same verdict on too many nodes: something else is wrong
    "evidence",  # one piece of evidence; this lever needs two that do not depend on each other
    "vetoed",  # by a person
    "share",  # as many engines of the fleet are below 50 % as may be
    "journal",  # the journal can't be written: no act without its intent
    "shared_gpu",  # neighbours that are not ours would be hit
    "unsupported",  # the engine says that it can't, or may not
    "exact",  # the accounts are not exact now
)


class Outcome(Value, frozen=True, kw_only=True):
    """What one process answered. ``code``: see :data:`engine_hooks.levers.orders.CODES`; no_answer, not_here where it
    said nothing. ``in_force``: it keeps a lease on it.
    """

    target: str
    code: str
    detail: str
    effect: dict[str, int | float]
    in_force: bool = False


class Action(Value, frozen=True, kw_only=True):
    """An action, as the journal has it now. Times are Unix seconds; ``by``: agent, or the person who asked.

    ``before`` and ``after``: the expected signal when it was sent and when it was looked at again. ``until``: when a
    person's order ends, None where it stands until it is undone. ``replaced``: the arguments that were in force before,
    where it has changed those of another action.
    """

    id: str
    plan: Plan
    mode: Mode
    phase: Phase
    at: float
    changed: float
    by: str = "agent"
    outcomes: tuple[Outcome, ...] = ()
    before: float | None = None
    after: float | None = None
    verified: Verified = "not_yet"
    reason: str = ""
    until: float | None = None
    replaced: dict[str, Argument] | None = None


class BreakerState(Value, frozen=True, kw_only=True):
    """``open``: nothing is done until a person closes it. ``failures``: in a row, of actions that failed or did not
    help.
    """

    open: bool = False
    since: float | None = None
    reason: str = ""
    failures: int = 0


class ActionCount(Value, frozen=True, kw_only=True):
    """How often ``lever`` ended (or was refused) with ``code`` since the agent started."""

    lever: str
    code: str
    count: int


class ActionsState(Value, frozen=True, kw_only=True):
    """What the agent does, for every face. ``mode``: the strongest that any lever has. ``problem``: why nothing can be
    done now (journal, off switch), empty otherwise, and where nothing would be done anyway (observe). ``off``: why all
    is switched off, in any mode, for persons' orders, too. ``recent``: newest first, what is in force included.
    ``refused``: by why; ``done``: by how they ended.
    """

    mode: Mode = "observe"
    problem: str = ""
    off: str = ""
    breaker: BreakerState = BreakerState()
    recent: tuple[Action, ...] = ()
    refused: tuple[ActionCount, ...] = ()
    done: tuple[ActionCount, ...] = ()
    budget_left: int | None = None
