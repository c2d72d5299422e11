"""What is in force: renewed while it is wanted, taken over from an agent before this one, and closed when it has ended.

An engine is believed about what is in force in it: what it no longer has is closed here, never ordered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from agent.actions.book import Book
from agent.actions.orders import AGAIN_SECONDS, Orders
from agent.actions.own import SUPERVISED
from agent.actions.processes import Process, all_processes
from agent.actions.types import Action, Phase
from agent.state import AgentState
from engine_hooks.levers.orders import ActionOrder, LeaseRow

RENEWALS = 3.0  # in one lease: two may be lost
# A process tells of its leases with its reports; one that has just come back may still have an order before it.
SETTLE_SECONDS = 3.0
HANDOVER_SECONDS = 10.0  # beyond the lease: an engine that has not come back by then has undone it, or is gone

End = Callable[[Action, Phase, str], None]


class Leases:
    """``end`` takes an action back at those of its targets that still have it: how it ended, and why."""

    def __init__(self, book: Book, orders: Orders, end: End) -> None:
        self._book = book
        self._orders = orders
        self._end = end
        self._inherited: dict[str, float] = {}  # until when they are waited for
        self._met: dict[str, float] = {}  # since when all processes of an inherited action are here
        self._renewed: dict[str, float] = {}
        self._missing: dict[str, int] = {}

    def inherit(self, actions: Sequence[Action], now: float) -> None:
        """Take over what an agent before this one had not ended. ``now``: monotonic seconds."""
        for action in actions:
            self._inherited[action.id] = now + action.plan.lease_seconds + HANDOVER_SECONDS

    def waits(self, action: Action) -> bool:
        """Whether its processes have not yet told this agent what they have of it."""
        return action.id in self._inherited

    def forgotten(self, instance: str, action: str, code: str) -> None:
        """A process says that it has ended an action by itself, or knows none of this name."""
        found = self._book.actions.get(action)
        if found is not None and found.phase == "in_force" and instance in found.plan.targets:
            why = "its lease ran out in the engine" if code == "expired" else f"{code} in the engine"
            self._end(found, "expired", why)

    def again(self, action: str, now: float) -> None:
        """A process had too many orders to look at a renewal: the next one is soon. ``now``: monotonic seconds."""
        found = self._book.actions.get(action)
        if found is not None and action in self._renewed:
            self._renewed[action] = now - found.plan.lease_seconds / RENEWALS + AGAIN_SECONDS

    def renew(self, action: str) -> None:
        """Renew an action at once, at all its processes: not all of them have had it for as long."""
        if action in self._renewed:
            self._renewed[action] = float("-inf")

    def tick(self, now: float) -> None:
        """Renew what is due. ``now``: monotonic seconds."""
        for action in self._book.live():
            if action.phase != "in_force":
                continue
            lease = action.plan.lease_seconds
            if now - self._renewed.setdefault(action.id, now) < lease / RENEWALS:
                continue
            self._renewed[action.id] = now
            for target in action.plan.targets:
                self._orders.tell(
                    ActionOrder(
                        action=action.id,
                        lever=action.plan.lever,
                        op="renew",
                        instance=target,
                        lease_seconds=lease,
                        valid_seconds=lease,
                    )
                )

    def look(self, state: AgentState, now: float) -> None:
        """Compare what should be in force with what the processes say is."""
        known = all_processes(state)
        live = self._book.live()
        for action in live:
            if action.id in self._inherited:
                self._take_over(action, known, now)
            elif action.phase == "in_force":
                self._check(action, known, now)
        kept = {each.id for each in live}
        for memory in (self._inherited, self._met, self._renewed, self._missing):
            for gone in [each for each in memory if each not in kept]:
                del memory[gone]

    def _check(self, action: Action, known: dict[str, Process], now: float) -> None:
        gone = [target for target in action.plan.targets if target not in known]
        if gone:
            self._end(action, "lost", f"process {gone[0][:12]} is gone")
            return
        if now - self._renewed.setdefault(action.id, now) < SETTLE_SECONDS:
            return
        missing = [
            target for target in action.plan.targets if known[target].up and _lease(known[target], action.id) is None
        ]
        self._missing[action.id] = self._missing.get(action.id, 0) + 1 if missing else 0
        if self._missing[action.id] > 1:
            self._end(action, "expired", f"process {missing[0][:12]} has it no longer")

    def _take_over(self, action: Action, known: dict[str, Process], now: float) -> None:
        here = [known[target] for target in action.plan.targets if target in known and known[target].up]
        late = now >= self._inherited[action.id]
        leases, supervised = [_lease(process, action.id) for process in here], action.plan.lever in SUPERVISED
        if not late:
            if len(here) < len(action.plan.targets):
                return
            unsettled = not supervised and not all(leases)
            if unsettled and now - self._met.setdefault(action.id, now) < SETTLE_SECONDS:
                return
        del self._inherited[action.id]
        if supervised or not action.plan.targets:
            why = "an agent before this one ended meanwhile: it is not done again"
            self._book.set(replace(action, verified="unknown"), "lost", why)
            return
        if action.plan.amends:
            self._close_change(action, known)
            return
        if here and len(here) == len(action.plan.targets) and all(leases):
            found = next(each for each in leases if each is not None)
            self._renewed[action.id] = float("-inf")  # at once: nobody has renewed it meanwhile
            plan = replace(action.plan, arguments=found.arguments)
            self._book.set(replace(action, plan=plan), "in_force", "handed over from an agent before this one")
        elif any(leases):
            self._end(action, "undone", "only some of its processes still have it")
        elif not here:
            self._book.set(replace(action, verified="unknown"), "lost", "engine gone")
        elif action.phase == "in_force":
            why = "its lease ran out in the engine while no agent was here"
            self._book.set(replace(action, verified="unknown"), "expired", why)
        else:
            why = "the engine does not have it: it was not done, or has ended meanwhile"
            self._book.set(replace(action, verified="unknown"), "lost", why)

    def _close_change(self, action: Action, known: dict[str, Process]) -> None:
        """An agent ended while it changed arguments: the process says whether they were."""
        leases = [_lease(known[target], action.plan.amends) for target in action.plan.targets if target in known]
        done = bool(leases) and all(each is not None and each.arguments == action.plan.arguments for each in leases)
        self._book.set(
            replace(action, verified="unknown"), "done" if done else "lost", "an agent before this one ended"
        )


def _lease(process: Process, action: str) -> LeaseRow | None:
    return next((row for row in process.in_force if row.action == action), None)
