"""Runs plans: the intent into the journal, the order to all its targets, all of them or none, and back again.

Nothing here decides whether: see :mod:`agent.actions.safety`. Whatever fails, the journal has what was tried, and what
one of several processes has done alone is undone.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from agent.actions.book import Book
from agent.actions.errors import JournalError
from agent.actions.orders import BUSY, NO_ANSWER, NOT_HERE, Orders
from agent.actions.own import OwnLevers, Prepares
from agent.actions.types import Action, Mode, Outcome, Phase, Plan, Refusal
from agent.policy.types import Policy
from engine_hooks.levers.orders import Argument, Op

ENDED = frozenset({"undone", "unknown", "wrong_engine"})  # answers to an undo: nothing is in force there any more
REFUSING = frozenset(
    {"not_allowed", "unsupported", "wrong_engine", "stale", "conflict", "unsafe", "nothing", "unknown", "bad_argument"}
    | {BUSY}
)
MINE = "agent"
SLOW = {"sleep": 120.0}  # seconds that levers may take which move a model's weights


def new_action(
    plan: Plan, mode: Mode, at: float, before: float | None, *, by: str = MINE, until: float | None = None
) -> Action:
    """Return an action, not begun yet. ``before``: the expected signal now; ``until``: a person's order's end."""
    return Action(
        id=secrets.token_hex(6),
        plan=plan,
        mode=mode,
        phase="intent",
        at=at,
        changed=at,
        by=by,
        before=before,
        until=until,
    )


class Executor:
    """``policy`` gives the one in force; ``own``: levers that no process is asked for; ``before``: what is done
    before a lever's order is sent, by lever. ``forbidden``: why an action that was begun must not be done any more,
    empty where it may: its intent, and what comes before it, take time.
    """

    def __init__(
        self,
        book: Book,
        orders: Orders,
        policy: Callable[[], Policy],
        own: OwnLevers,
        before: Mapping[str, Prepares],
        *,
        forbidden: Callable[[Action], str],
    ) -> None:
        self._own, self._before = own, before
        self._forbidden = forbidden
        self._book = book
        self._orders = orders
        self._policy = policy

    async def run(self, action: Action) -> Action | None:
        """Run an action to the end of its first answers; return it, or None where its intent was not written."""
        plan = action.plan
        try:
            await self._book.intend(action, self._policy().actions.answer_seconds)
        except JournalError as error:
            self._book.refused(plan, Refusal(code="journal", text=str(error)))
            self._book.journal.put(replace(action, phase="refused", reason="the intent was not written in time"))
            return None
        if action.mode == "dry-run":
            return await self._try(action)
        if plan.amends:
            return await self._amend(action)
        return await self._apply(action)

    async def _try(self, action: Action) -> Action:
        own = self._own.get(action.plan.lever)
        outcomes = await self._ask("try", action) if own is None else (await own.would(action.plan),)
        action = replace(action, outcomes=outcomes, verified="unknown")
        if all(each.code == "would" for each in outcomes):
            said = dict.fromkeys(each.detail for each in outcomes if each.detail)
            return self._book.set(action, "would", "; ".join(said))
        return self._book.set(action, _ending(outcomes), _told(outcomes))

    async def _apply(self, action: Action) -> Action:
        first, forbidden = self._before.get(action.plan.lever), partial(self._forbidden, action)
        why = await first.prepare(action.plan, forbidden) if first is not None else ""
        if why := why or forbidden():
            return self._book.set(replace(action, verified="unknown"), "refused", why)
        action = self._book.set(action, "sent")
        own = self._own.get(action.plan.lever)
        outcomes = await self._ask("apply", action) if own is None else (await own.apply(action.plan, forbidden),)
        action = replace(action, outcomes=outcomes)
        if all(each.code == "done" for each in outcomes):
            leased = any(each.in_force for each in outcomes)
            return self._book.set(_measured(action), "in_force" if leased else "done")
        # All or none. Who did not answer may have done it all the same.
        done = [each.target for each in outcomes if each.in_force or each.code == NO_ANSWER]
        if done:
            await self._undo_at(action.id, action.plan.lever, done)
        return self._book.set(replace(action, verified="unknown"), _ending(outcomes), _told(outcomes))

    async def _amend(self, action: Action) -> Action:
        """Change the arguments of what is in force, at all processes or at none: where they are refused those from
        before stay. Where that can't be had nothing is in force any more.
        """
        base = self._book.actions.get(action.plan.amends)
        if base is None or base.phase != "in_force":
            return self._book.set(replace(action, verified="unknown"), "refused", "what it changes has ended meanwhile")
        if why := self._forbidden(action):
            return self._book.set(replace(action, verified="unknown"), "refused", why)
        action = self._book.set(action, "sent")
        outcomes = await self._ask("amend", action, lease_of=base.id)
        action = replace(action, outcomes=outcomes)
        if all(each.code == "done" for each in outcomes):
            base = self._book.now(base)
            changed = replace(base, plan=replace(base.plan, arguments=action.plan.arguments))
            if action.by != MINE:  # it is the person's from now on, who says for how long, too
                plan = replace(changed.plan, undo=action.plan.undo)
                changed = replace(changed, plan=plan, by=action.by, until=action.until)
            self._book.set(changed, reason=f"changed by action {action.id}")
            action = replace(action, replaced=base.plan.arguments)
            return self._book.set(_measured(action), "done")
        obeyed = [each.target for each in outcomes if each.code == "done"]
        if not (all(each.in_force for each in outcomes) and await self._as_before(base, obeyed)):
            await self.undo(base, f"action {action.id} could not change it")
        return self._book.set(replace(action, verified="unknown"), _ending(outcomes), _told(outcomes))

    async def _as_before(self, base: Action, targets: Sequence[str]) -> bool:
        """Put the arguments of ``base`` back at these of its processes; return whether all have them."""
        if not targets:
            return True
        former = replace(base, plan=replace(base.plan, targets=tuple(targets)))
        return all(each.code == "done" for each in await self._ask("amend", former))

    async def undo(self, action: Action, reason: str, ending: Phase = "undone") -> Action:
        """Take back what is in force; what can't be reached ends by its lease. ``ending``: what is said of it then."""
        action = self._book.set(self._book.now(action), "undoing", reason)
        outcomes = await self._undo_at(action.id, action.plan.lever, action.plan.targets)
        action = self._book.now(action)
        # One that is not here now may come back with it; where it is known to be gone, its end was that of the action.
        ended = ENDED | {NOT_HERE} if ending == "lost" else ENDED
        left = [each for each in outcomes if each.code not in ended]
        if left:
            return self._book.set(action, "expired", f"{reason}; {_told(left)}: the lease ends it")
        return self._book.set(action, ending, reason)

    async def extend(self, action: Action, newcomers: tuple[str, ...]) -> Action:
        """Have processes do it that came after it was done; where one will not, nobody does it any more."""
        plan = action.plan
        also = replace(action, plan=replace(plan, targets=newcomers))
        outcomes = await self._ask("apply", also)
        action = replace(self._book.now(action), plan=replace(plan, targets=(*plan.targets, *newcomers)))
        if all(each.code == "done" for each in outcomes):
            return self._book.set(action, reason=f"{len(newcomers)} of its processes came later, and do it too")
        return await self.undo(action, f"a process that came later does not do it: {_told(outcomes)}")

    async def loosen(self, action: Action, arguments: dict[str, Argument], reason: str) -> Action:
        """Put milder arguments in the place of those in force: a step of taking back."""
        milder = replace(action, plan=replace(action.plan, arguments=arguments))
        outcomes = await self._ask("amend", milder, lease_of=action.id)
        if all(each.code == "done" for each in outcomes):
            return self._book.set(replace(self._book.now(action), plan=milder.plan), reason=reason)
        return await self.undo(action, f"{reason}; {_told(outcomes)}")

    async def _ask(self, op: Op, action: Action, lease_of: str = "") -> tuple[Outcome, ...]:
        plan = action.plan
        return await self._orders.ask(
            op,
            action=lease_of or action.id,
            lever=plan.lever,
            targets=plan.targets,
            arguments=plan.arguments,
            lease_seconds=plan.lease_seconds,
            seconds=self._seconds(plan.lever),
        )

    async def _undo_at(self, action: str, lever: str, targets: Sequence[str]) -> tuple[Outcome, ...]:
        return await self._orders.ask(
            "undo", action=action, lever=lever, targets=targets, lease_seconds=0.0, seconds=self._seconds(lever)
        )

    def _seconds(self, lever: str) -> float:
        """Return how long an answer is waited for."""
        return max(self._policy().actions.answer_seconds, SLOW.get(lever, 0.0))


def _measured(action: Action) -> Action:
    """What nothing is expected of can't be seen to help."""
    return action if action.plan.expected is not None else replace(action, verified="unknown")


def _ending(outcomes: Sequence[Outcome]) -> Phase:
    """Return whether it was refused by all that did not do it, or has failed."""
    codes = {each.code for each in outcomes if each.code not in ("done", "would")}
    return "refused" if codes <= REFUSING else "failed"


def _told(outcomes: Sequence[Outcome]) -> str:
    """Return what was answered, each answer once; of those who did it only where all did."""
    others = [each for each in outcomes if each.code not in ("done", "would")]
    said = [f"{each.code}: {each.detail}" if each.detail else each.code for each in others or outcomes]
    return "; ".join(dict.fromkeys(said))
