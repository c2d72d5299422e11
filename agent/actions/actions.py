"""Acting: from each look's verdicts to orders, and what becomes of them. The agent's loop is its only thread.

:meth:`Actions.take` and :meth:`Actions.tick` return at once; what waits for a disk or an engine runs in tasks, of which
one engine has one at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from agent.actions.book import Book
from agent.actions.errors import JournalError
from agent.actions.executor import MINE, Executor, new_action
from agent.actions.fleet import FleetOrders
from agent.actions.follow import Follow, Found
from agent.actions.gates.pace import CURES, budget_left
from agent.actions.gates.question import Question
from agent.actions.journal import Journal
from agent.actions.leases import Leases
from agent.actions.marks import Mark, mark_of, yields_of
from agent.actions.measure import measured
from agent.actions.memory import Memory, standing
from agent.actions.orders import BUSY, Orders, Send
from agent.actions.outside import Outside
from agent.actions.own import OwnLevers, Prepares
from agent.actions.planner import plans
from agent.actions.processes import newcomers
from agent.actions.room import Room
from agent.actions.safety import OF_ONE_LEVER, refusal_of
from agent.actions.silent import Silent
from agent.actions.tasks import Tasks, Work
from agent.actions.told import actions_state
from agent.actions.types import Action, ActionsState, Mode, Phase, Plan, Refusal
from agent.actions.vetoes import Veto, vetoed
from agent.actions.watching import is_measured, milder
from agent.actions.writing import JournalThread
from agent.policy.types import Policy
from agent.state import AgentState, Judgement
from engine_hooks.levers.orders import ActionResult

OPEN_AGAIN_SECONDS = 10.0


def minute_of(unix: float) -> int:
    """Return the minute of the local day."""
    local = time.localtime(unix)
    return 60 * local.tm_hour + local.tm_min


class Actions:
    """``directory``: where the journal and the switches are. ``send`` gives an order to the link.

    ``clock``: monotonic seconds, ``wall``: Unix seconds. ``environment``: why the environment switches all off.
    ``own``: levers that no process is asked for. ``before``: what is done before a lever's order is sent.
    ``word``: what is ordered for the fleet by its coordinator.
    """

    def __init__(
        self,
        directory: Path,
        policy: Policy,
        send: Send,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        minute: Callable[[float], int] = minute_of,
        environment: str = "",
        own: OwnLevers | None = None,
        before: Mapping[str, Prepares] | None = None,
        word: Callable[[], FleetOrders] = FleetOrders,
    ) -> None:
        self.policy = policy
        self._own = {} if own is None else own
        self.clock, self.wall, self._minute = clock, wall, minute
        self.journal = JournalThread(Journal(directory))
        self.book = Book(self.journal, wall)
        self.orders = Orders(send, self._untold)
        self.executor = Executor(
            self.book,
            self.orders,
            lambda: self.policy,
            self._own,
            {} if before is None else before,
            forbidden=self._forbidden,
        )
        self.outside = Outside(lambda: self.policy, directory, environment, word)
        self.memory = Memory()
        self.tasks = Tasks(self._fault)
        self.looked_at: AgentState | None = None
        self._leases = Leases(self.book, self.orders, self._end)
        self._follow = Follow(self.memory)
        self._silent = Silent()
        self._room = Room()
        self._opened = False
        self._opening = False
        self._next_open = 0.0
        self._hurry = False

    # -- what the daemon calls --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin: read what an agent before this one has left."""
        self.journal.start()
        self.outside.start()
        self._open()

    async def close(self) -> None:
        """End. What is in force stays so for its lease: the next agent takes it over."""
        await self.tasks.close()
        self.outside.close()
        await asyncio.to_thread(self.journal.close)

    def heard(self, instance: str, result: ActionResult) -> None:
        """Take what a process said of an order, or of a lease that ran out."""
        self.orders.heard(instance, result)

    def tick(self) -> None:
        """Let time pass, a few times a second."""
        now = self.clock()
        if not self._opened and now >= self._next_open:
            self._open()
        self.book.tick(now)
        self._close_for_the_fleet()
        self._leases.tick(now)

    def take(self, state: AgentState) -> None:
        """Look at a judged state: follow what is in force, and act on what stands."""
        self.looked_at = state
        if state.judgement is None:
            return
        judgement = self._room.take(state.judgement, state, self.policy, self.book.recent())
        self.memory.take(judgement, state.monotonic)
        self._hurry = self._wants_to_hurry(state.judgement)
        if not self._opened:
            return
        self._leases.look(state, self.clock())
        for found in self._follow.measured(self.book.recent(), state):
            self._measured(found)
        self._take_back(state)
        self._act(state, judgement)

    @property
    def hurry(self) -> bool:
        """Whether the next look matters soon: something that would be acted on is about to be confirmed."""
        return self._hurry

    def state(self) -> ActionsState:
        """Return what is told of all this."""
        done = [each for each in self.book.recent() if each.by == MINE]
        left = budget_left(done, self.policy, self.wall(), self.book.budget_since)
        return actions_state(self.book, self.policy, self.off, self.not_written, left)

    # -- what persons' orders use, too ------------------------------------------------------------------------------

    @property
    def off(self) -> str:
        """Why nothing may be done, by a switch; empty where none is off."""
        return self.book.off or self.outside.said(self.clock()).off

    @property
    def not_written(self) -> str:
        """Why the journal does not let anything be done; empty where it does."""
        return self.journal.problem if self._opened else self.journal.problem or "the journal has not been read yet"

    @property
    def opened(self) -> bool:
        """Whether what an agent before this one has left is known."""
        return self._opened

    def mark_of(self, engine: str) -> Mark | None:
        """Return how a person holds an engine by a command."""
        return mark_of(self.book.marks, engine, self.wall())

    def stops(self, lever: str, engine: str) -> Refusal | None:
        """Return why the agent's own lever may not be pulled on an engine now, whatever the mode is."""
        if self.off:
            return Refusal(code="switched_off", text=self.off)
        if self.not_written:
            return Refusal(code="journal", text=self.not_written)
        veto = vetoed(self.vetoes, lever, engine, self.wall())
        if veto is not None:
            return Refusal(code="vetoed", text=f"vetoed by {veto.by}")
        yields = self.yields
        why = yields.get(engine) or yields.get("")
        return Refusal(code="yield", text=why) if why else None

    @property
    def vetoes(self) -> tuple[Veto, ...]:
        """The node's, and the fleet's."""
        fleet = self.outside.said(self.clock()).orders
        return (*self.book.vetoes, *(veto for each in fleet for veto in each.vetoes))

    @property
    def yields(self) -> dict[str, str]:
        """Why nothing is done, by engine; ``""``: of all."""
        return {**self.outside.said(self.clock()).yields, **yields_of(self.book.marks, self.wall())}

    def question(self, plan: Plan, state: AgentState, *, by_person: bool = False) -> Question:
        """Return what the gates look at."""
        now, monotonic = self.wall(), self.clock()
        said = self.outside.said(monotonic)
        begun = [each for each in self.tasks.begun() if each.id not in self.book.actions]
        own = self._own.get(plan.lever)
        return Question(
            plan=plan,
            policy=self.policy,
            state=state,
            now=now,
            monotonic=monotonic,
            minute=self._minute(now),
            recent=(*self.book.recent(), *begun),
            breaches=self.memory.breaches(plan.kind, plan.subject.engine),
            breaker=self.book.breaker,
            budget_since=self.book.budget_since,
            off=self.off,
            journal=self.not_written,
            yields=self.yields,
            fleet=said.fleet,
            vetoes=self.vetoes,
            by_person=by_person,
            own=None if own is None else own.why_not(plan.subject.engine),
        )

    async def run(self, action: Action) -> Action | None:
        """Run a new action and draw the conclusions from how its orders were answered."""
        done = await self.executor.run(action)
        if done is not None and done.mode == "enforce" and done.phase == "done" and done.plan.lever in CURES:
            self._not_known_any_more(done)
        if done is None or done.by != MINE:
            return done
        limits, plan = self.policy.actions, done.plan
        if done.phase == "failed" and done.mode == "enforce":  # a dry-run has done nothing that could fail
            self.book.failed(f"{plan.lever} on {plan.subject}: {done.reason}", limits.breaker_failures)
        if done.phase in ("failed", "refused"):
            # The next rung has its turn; this one again when it has had time to change its mind.
            again = self.clock() + 2 * limits.cooldown_seconds
            self.memory.did_not_help(plan.kind, plan.subject.engine, plan.rung, until=again)
        return done

    # -- one look ---------------------------------------------------------------------------------------------------

    def _act(self, state: AgentState, judgement: Judgement) -> None:
        asked = []
        made = tuple(plans(judgement, state, self.policy, self.memory, self.book.live()))
        for ladder in (*made, *self._silent.take(made, judgement, state)):
            for plan in ladder:
                asked.append(plan)
                refusal = self._try(plan, state)
                if refusal is None or refusal.code not in OF_ONE_LEVER:
                    break
        self.book.asked_for(asked)

    def _try(self, plan: Plan, state: AgentState) -> Refusal | None:
        question = self.question(plan, state)
        refusal = refusal_of(question)
        engine = plan.subject.engine
        if refusal is None and self.tasks.busy(engine):
            refusal = Refusal(code="busy", text=f"something is being done on {engine}")
        if refusal is not None:
            self.book.refused(plan, refusal)
            if refusal.code == "budget":
                self.book.open_breaker(refusal.text)
            return refusal
        self._run(plan, question.mode, state)
        return None

    def _run(self, plan: Plan, mode: Mode, state: AgentState) -> None:
        before = measured(plan.expected.signal, state, plan.subject) if plan.expected is not None else None
        action = new_action(plan, mode, self.wall(), before)
        self.tasks.begin(plan.subject.engine, self.run(action), action)

    def _measured(self, found: Found) -> None:
        action = self.book.set(replace(found.action, verified=found.verdict, after=found.value))
        if action.by != MINE:
            return
        if found.verdict == "helped":
            self.book.helped()
        elif found.verdict == "did_not":
            plan = action.plan
            self.memory.did_not_help(plan.kind, plan.subject.engine, plan.rung)
            self.book.failed(f"{plan.lever} on {plan.subject} did not help", self.policy.actions.breaker_failures)
            self._let_go(action)

    def _not_known_any_more(self, cure: Action) -> None:
        """Let it be open whether what was being measured there has helped: the cure may have done it."""
        for each in self.book.recent():
            here = each.plan.subject.engine == cure.plan.subject.engine
            if here and each.plan.lever != cure.plan.lever and is_measured(each):
                self.book.set(replace(each, verified="unknown"), reason=f"not measured: action {cure.id} came between")

    def _close_for_the_fleet(self) -> None:
        """A person has closed all breakers: what has opened before that closes, what opens later does not."""
        for orders in self.outside.said(self.clock()).orders:
            at, breaker = orders.closed_at, self.book.breaker
            if self._opened and breaker.open and at is not None and at > (breaker.since or 0.0):
                self.book.close_breaker(f"{orders.closed_by}, for the fleet")

    def _let_go(self, action: Action) -> None:
        """Put the former arguments back where a change of them did not help; what is in force is unwanted then."""
        base, before = self.book.actions.get(action.plan.amends), action.replaced
        if base is not None and base.phase == "in_force" and before is not None:
            self._alone(base, lambda: self.executor.loosen(base, before, "a change of it did not help"))

    def _take_back(self, state: AgentState) -> None:
        live = self.book.live()
        in_force = tuple(each for each in live if each.phase == "in_force" and not self._leases.waits(each))
        for action, why in self._unwanted(in_force):
            self._end(action, "undone", why)
        for action, why in self._room.back(in_force, state, self.policy):
            self._end(action, "undone", why)
        for action in in_force:
            if new := newcomers(state, action):
                self._alone(action, partial(self._extend, action, new))
        for action in self._follow.calm(in_force, self.policy, state.monotonic):
            arguments = milder(action, state, self.policy)
            if arguments is None:
                self._end(action, "undone", "it is calm again")
            else:
                self._alone(action, partial(self.executor.loosen, action, arguments, "a step back: it is calm"))

    def _unwanted(self, actions: tuple[Action, ...]) -> Iterator[tuple[Action, str]]:
        undos = [each.undo for each in self.outside.said(self.clock()).orders if each.undo is not None]
        said = (self.policy, self.off, self.vetoes)
        return self._follow.unwanted(actions, *said, now=self.wall(), undos=undos)

    def _forbidden(self, action: Action) -> str:
        """Return why an action that the gates have let pass must not be done any more; empty where it may."""
        why = next((why for _, why in self._unwanted((action,))), "")
        if why or action.by != MINE:
            return why
        if self.book.breaker.open:
            return f"the breaker is open: {self.book.breaker.reason}"
        refusal = self.stops(action.plan.lever, action.plan.subject.engine)
        return "" if refusal is None else refusal.text

    async def _extend(self, action: Action, new: tuple[str, ...]) -> None:
        await self.executor.extend(action, new)
        self._leases.renew(action.id)

    def _end(self, action: Action, ending: Phase, why: str) -> None:
        self._alone(action, lambda: self.executor.undo(action, why, ending))

    def _fault(self, engine: str) -> None:
        """Something has raised: what was being done on the engine is not going on, and must not look as if it were."""
        for action in self.book.live():
            if action.plan.subject.engine == engine and action.phase != "in_force":
                why = "a fault of kvtide's own, see the log; what the engine has of it ends by its lease"
                self.book.set(replace(action, verified="unknown"), "failed", why)
        self.book.open_breaker("a fault of kvtide's own; see the log")

    def _alone(self, action: Action, work: Callable[[], Work]) -> None:
        self.tasks.alone(action.plan.subject.engine, work)

    # -- beginning --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._opening:
            return
        self._opening = True
        self._next_open = self.clock() + OPEN_AGAIN_SECONDS
        self.tasks.beside(self._read())

    async def _read(self) -> None:
        try:
            await self.book.open(self.policy.actions.answer_seconds)
        except JournalError:
            return  # the journal's thread has said so
        finally:
            self._opening = False
        self._leases.inherit(self.book.live(), self.clock())
        for action in self.book.recent():
            if action.phase == "done" and action.verified == "not_yet":
                self.book.set(replace(action, verified="unknown"))  # what was before is not known to this agent
        self._opened = True

    def _untold(self, instance: str, result: ActionResult) -> None:
        if result.op == "renew" and result.code == BUSY:
            self._leases.again(result.action, self.clock())
        elif result.code == "expired" or (result.op == "renew" and not result.ok):
            self._leases.forgotten(instance, result.action, result.code)

    def _wants_to_hurry(self, judgement: Judgement) -> bool:
        if self.policy.actions.strongest() == "observe":
            return False
        needed = self.policy.actions.breaches
        waits = any(self.memory.breaches(each.kind, each.subject.engine) < needed for each in standing(judgement))
        return waits or any(each.phase == "suspect" and each.tier != "note" for each in judgement.verdicts)
