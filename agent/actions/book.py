"""What has been done, in memory as in the journal: actions, breaker, vetoes, counts. On the agent's loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from agent.actions.errors import JournalError
from agent.actions.journal_file import Refused
from agent.actions.marks import Mark
from agent.actions.memory import Key
from agent.actions.types import LIVE_PHASES, Action, ActionCount, BreakerState, Phase, Plan, Refusal
from agent.actions.vetoes import Veto
from agent.actions.writing import JournalThread
from agent.policy.actions import Rung

logger = logging.getLogger("kvtide.actions")

# In memory, of what has ended. By its own the agent keeps its budget and its cooldowns: an order that somebody gives
# must not push them out. Of orders nothing is needed but what is shown.
MOST_OWN = 512
MOST_ORDERED = 64
SHOWN = 32
MOST_VETOES = 64
MOST_MARKS = 256
PROBE_SECONDS = 10.0  # a journal that could not be written is tried again so often

T = TypeVar("T")

DID_NOT_HELP = "did_not_help"  # beside the phases
PASSING = "busy"
QUOTAS: Rung = "quotas"

BREAKER, BUDGET, VETOES, OFF, PROBE = "breaker", "budget_since", "vetoes", "off", "probe"
MARKS, WEIGHTS = "marks", "weights"


class Book:
    """``wall``: Unix seconds. Each change is in memory at once and goes to the journal in order."""

    def __init__(self, journal: JournalThread, wall: Callable[[], float]) -> None:
        self.journal = journal
        self._wall = wall
        self.actions: dict[str, Action] = {}  # oldest first
        self.breaker = BreakerState()
        self.budget_since = 0.0
        self.vetoes: tuple[Veto, ...] = ()
        self.marks: tuple[Mark, ...] = ()
        self.weights = b""  # what the balancer keeps over a restart
        self.off = ""  # by a person, on this node
        self._done: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[tuple[str, str]] = Counter()
        self._told: dict[tuple[Key, str], str] = {}
        self._passing: frozenset[tuple[Key, str]] = frozenset()
        self._next_probe = 0.0
        self._opened = False
        self._unwritten: set[str] = set()  # facts that have changed before what is on the disk was known
        self._freed: set[str] = set()  # engines that were freed before that: what is there does not hold them again

    # -- actions ----------------------------------------------------------------------------------------------------

    def live(self) -> tuple[Action, ...]:
        """Return the actions that have not ended, oldest first."""
        return tuple(each for each in self.actions.values() if each.phase in LIVE_PHASES)

    def recent(self) -> tuple[Action, ...]:
        """Return all that is remembered, oldest first."""
        return tuple(self.actions.values())

    def now(self, action: Action) -> Action:
        """Return an action as it is now: while an answer was waited for, it may have been measured."""
        return self.actions.get(action.id, action)

    async def intend(self, action: Action, seconds: float) -> None:
        """Write the intent; when this returns it is on the disk. Raises :class:`JournalError`."""
        await self.journal.intend(action, seconds)
        self._take(action)

    def set(self, action: Action, phase: Phase | None = None, reason: str | None = None) -> Action:
        """Take an action as it is now, in another phase where one is given; return it."""
        phase = phase or action.phase
        text = action.reason if reason is None else reason
        now = replace(action, phase=phase, reason=text, changed=self._wall())
        self.journal.put(now)
        before = self.actions.get(now.id)
        self._take(now)
        if before is None or before.phase != phase:
            logger.info(
                "action %s: %s on %s: %s%s", now.id, now.plan.lever, now.plan.subject, phase, text and f": {text}"
            )
        result = result_of(now)
        if result and (before is None or not result_of(before)):
            self._done[now.plan.lever, result] += 1
        return now

    def _take(self, action: Action) -> None:
        self.actions[action.id] = action
        ended = [each for each in self.actions.values() if each.phase not in LIVE_PHASES]
        for own, most in ((True, MOST_OWN), (False, MOST_ORDERED)):
            some = [each.id for each in ended if (each.by == "agent") is own]
            for old in some[: max(0, len(some) - most)]:
                del self.actions[old]

    # -- refusals ---------------------------------------------------------------------------------------------------

    def refused(self, plan: Plan, refusal: Refusal) -> None:
        """Count and write a refusal, once while the reason for it stays the same.

        What is busy at one look is not told: something else is being done at this moment, and by the next it is over.
        """
        key = asked_key(plan)
        passing = refusal.code == PASSING and key not in self._passing
        self._passing = self._passing - {key} if refusal.code != PASSING else self._passing | {key}
        if passing or self._told.get(key) == refusal.code:
            return
        self._told[key] = refusal.code
        self.note_refusal(plan.lever, plan.subject.engine, plan.kind, refusal)

    def note_refusal(self, lever: str, engine: str, kind: str, refusal: Refusal) -> None:
        """Count and write a refusal. ``kind``: what asked for the lever."""
        self._refused[lever, refusal.code] += 1
        code, text = refusal.code, refusal.text
        self.journal.refuse(Refused(at=self._wall(), lever=lever, engine=engine, kind=kind, code=code, text=text))

    def asked_for(self, plans: Iterable[Plan]) -> None:
        """Forget the refusals of what nobody plans any more."""
        kept = {asked_key(plan) for plan in plans}
        self._told = {key: code for key, code in self._told.items() if key in kept}
        self._passing &= kept

    # -- breaker, vetoes, switch ------------------------------------------------------------------------------------

    def failed(self, reason: str, most: int) -> None:
        """Count an action that failed or did not help; ``most`` of them in a row open the breaker."""
        failures = self.breaker.failures + 1
        self._set_breaker(replace(self.breaker, failures=failures))
        if failures >= most:
            self.open_breaker(f"{failures} in a row failed or did not help, the last: {reason}")

    def helped(self) -> None:
        """An action helped: failures are counted anew."""
        if self.breaker.failures:
            self._set_breaker(replace(self.breaker, failures=0))

    def open_breaker(self, reason: str) -> None:
        """Let nothing be done any more until a person closes it."""
        if not self.breaker.open:
            logger.error("the breaker is open: %s; close it with: kvtide actions close-breaker", reason)
            self._set_breaker(replace(self.breaker, open=True, since=self._wall(), reason=reason))

    def close_breaker(self, by: str) -> bool:
        """Close it, with a new budget; return whether it was open."""
        was = self.breaker.open
        logger.info("the breaker is closed by %s", by)
        self._set_breaker(BreakerState())
        self.budget_since = self._wall()
        self._keep(BUDGET)
        return was

    def _set_breaker(self, breaker: BreakerState) -> None:
        self.breaker = breaker
        self._keep(BREAKER)

    def veto(self, veto: Veto) -> None:
        """Add a veto; the oldest goes where there are too many."""
        now = self._wall()
        others = [
            each for each in self.vetoes if each.until > now and (each.lever, each.engine) != (veto.lever, veto.engine)
        ]
        self.vetoes = (*others, veto)[-MOST_VETOES:]
        self._keep(VETOES)

    def mark(self, engine: str, mark: Mark | None) -> None:
        """Hold an engine for a person in the place of what was before; None: nobody holds it any more."""
        now = self._wall()
        others = [each for each in self.marks if each.engine != engine and (each.until is None or each.until > now)]
        self.marks = (*others, mark)[-MOST_MARKS:] if mark is not None else tuple(others)
        if mark is None and not self._opened:
            self._freed.add(engine)
        self._keep(MARKS)

    def keep_weights(self, body: bytes) -> None:
        """Keep what the balancer is to know after a restart."""
        self.weights = body
        self._keep(WEIGHTS)

    def switch(self, off: str) -> None:
        """Switch actions off on this node, with a reason; or on, with none."""
        self.off = off
        self._keep(OFF)

    def _keep(self, name: str) -> None:
        """Write a fact as it is now, soon; not over one that has not been read yet."""
        if self._opened:
            self.journal.keep(name, self._facts()[name])
        else:
            self._unwritten.add(name)

    def _facts(self) -> dict[str, bytes]:
        values = {
            BREAKER: self.breaker,
            BUDGET: self.budget_since,
            VETOES: self.vetoes,
            MARKS: self.marks,
            OFF: self.off,
        }
        return {name: msgspec.json.encode(value) for name, value in values.items()} | {WEIGHTS: self.weights}

    # -- beginning and going on -------------------------------------------------------------------------------------

    async def open(self, seconds: float) -> None:
        """Take what an agent before this one has left; what persons have said meanwhile stands beside it, or wins.

        Raises :class:`JournalError`.
        """
        kept = await self.journal.read(seconds)
        try:
            breaker = _fact(kept.facts, BREAKER, BreakerState, self.breaker)
            since = _fact(kept.facts, BUDGET, float, self.budget_since)
            vetoes = _fact(kept.facts, VETOES, tuple[Veto, ...], ())
            off = _fact(kept.facts, OFF, str, self.off)
            marks = _fact(kept.facts, MARKS, tuple[Mark, ...], ())
        except msgspec.MsgspecError as error:
            raise JournalError(f"the journal's facts can't be read: {error}") from None
        said = self._unwritten
        self.breaker = self.breaker if BREAKER in said else breaker
        self.budget_since = self.budget_since if BUDGET in said else since
        self.off = self.off if OFF in said else off
        vetoed = {(each.lever, each.engine) for each in self.vetoes}
        held = {each.engine for each in self.marks} | self._freed
        self.vetoes = (*(each for each in vetoes if (each.lever, each.engine) not in vetoed), *self.vetoes)
        self.marks = (*(each for each in marks if each.engine not in held), *self.marks)
        self.weights = kept.facts.get(WEIGHTS, self.weights)
        self._opened = True
        for name in sorted(said):
            self._keep(name)
        said.clear()
        known = {each.id for each in kept.actions}
        newer = [each for each in self.actions.values() if each.id not in known]
        self.actions = {each.id: each for each in [*reversed(kept.actions), *newer]}

    def tick(self, monotonic: float) -> None:
        """Try a journal again that could not be written, and write again what may not be on the disk: what has not
        ended, and the facts. By those the next agent knows what persons have said, who were told that it is so.
        """
        if (self.journal.problem or self.journal.missed) and monotonic >= self._next_probe:
            self._next_probe = monotonic + PROBE_SECONDS
            self.journal.missed = False
            for action in self.live():
                self.journal.put(action)
            for name, body in self._facts().items() if self._opened else ():
                self.journal.keep(name, body)
            self.journal.keep(PROBE, b"1")

    def counts(self) -> tuple[tuple[ActionCount, ...], tuple[ActionCount, ...]]:
        """Return how many were refused by why, and how many ended how."""
        refused, done = (
            tuple(ActionCount(lever=lever, code=code, count=count) for (lever, code), count in sorted(each.items()))
            for each in (self._refused, self._done)
        )
        return refused, done


def asked_key(plan: Plan) -> tuple[Key, str]:
    """Return what tells one plan that is made at look after look from another: a plan for all tenants names the worst,
    which may be another at each.
    """
    subject = replace(plan.subject, scope="engine", tenant="") if plan.rung == QUOTAS else plan.subject
    return (plan.kind, subject), plan.lever


def result_of(action: Action) -> str:
    """Return how an action has ended, as it is counted: its phase, or that it did not help; empty while not known."""
    if action.phase in LIVE_PHASES or (action.phase == "done" and action.verified == "not_yet"):
        return ""
    return DID_NOT_HELP if action.verified == "did_not" and action.phase in ("done", "undone") else action.phase


def _fact(facts: dict[str, bytes], name: str, kind: type[T], default: T) -> T:
    body = facts.get(name)
    return default if body is None else msgspec.json.decode(body, type=kind)
