"""What persons order: an action now, one taken back, a veto, the switch, the breaker. The journal has who it was."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping

import msgspec

from agent.actions.actions import Actions
from agent.actions.book import MOST_MARKS, MOST_VETOES
from agent.actions.executor import new_action
from agent.actions.marks import HELD, Mark
from agent.actions.measure import engine_of
from agent.actions.own import WEIGHT
from agent.actions.planner import in_force_on
from agent.actions.processes import targets_of
from agent.actions.safety import refusal_of
from agent.actions.types import LIVE_PHASES, Action, Plan
from agent.actions.vetoes import ANY, Veto
from agent.errors import KvtideError
from agent.policy.actions import LEVERS
from agent.state import AgentState, EngineState
from agent.subject import Subject
from engine_hooks.levers.orders import Argument, Arguments

WAIT_SECONDS = 10.0  # for what is being done on the same engine
FIRST_SECONDS = 5.0  # engines connect so soon after an agent has begun, and are looked at
NEXT_LOOK_SECONDS = 2.5  # within this the node is looked at again: who asks may know more than the last look
LOOK_SECONDS = 0.1
MOST_MINUTES = 7 * 24 * 60.0
MOST_NAME = 128
MOST_BYTES = 16 << 10  # of arguments: a report tells them back with all else that is in force, and a frame is 64 KiB
KIND = "person"
OWN_LEVERS = frozenset({WEIGHT})  # of the agent itself: a person holds an engine by a mark


class OrderError(KvtideError):
    """A person asked for what can't be done; the text says why."""


class WrongError(OrderError):
    """What was asked for can be asked of nobody: the text has the value and what is allowed."""


class UnknownError(OrderError):
    """There is nothing of this name."""


class Persons:
    """Every method raises :class:`OrderError`. ``by``: who asks. ``first_seconds``: engines connect so soon after this
    was made, and are waited for until then.
    """

    def __init__(self, actions: Actions, first_seconds: float = FIRST_SECONDS) -> None:
        self._actions = actions
        self._book = actions.book
        self._until = time.monotonic() + first_seconds

    async def order(
        self,
        lever: str,
        engine: str,
        arguments: Mapping[str, Argument],
        *,
        by: str,
        minutes: float | None = None,
        attempt: bool = False,
        why: str = "",
    ) -> Action:
        """Pull a lever on an engine now; where it is in force already, its arguments are changed.

        ``minutes``: for how long; None: until it is undone. ``attempt``: only ask what it would do, also of an
        engine that does not allow it.
        """
        if lever not in LEVERS or lever in OWN_LEVERS:
            known = ", ".join(each for each in LEVERS if each not in OWN_LEVERS)
            raise WrongError(f"lever: {lever!r}: must be one of {known}")
        if minutes is not None and not 0 < minutes <= MOST_MINUTES:
            raise WrongError(f"minutes: {minutes:g}: must be above 0, {MOST_MINUTES:g} at most")
        told = _told(arguments)
        await self._free(engine)
        state, found = await self._seen(engine, lever)
        while self._actions.tasks.busy(engine):  # something was begun while the engine was waited for
            await self._free(engine)
            state, found = await self._seen(engine, lever)
        if state is None or found is None:
            known = ", ".join(each.engine for each in state.engines) if state is not None else ""
            raise UnknownError(f"engine: {engine!r}: there is no such engine here; there are: {known or 'none'}")
        held = in_force_on(engine, self._book.live()).get(lever)
        plan = Plan(
            lever=lever,
            subject=Subject(scope="engine", engine=engine),
            targets=held.plan.targets if held else targets_of(state, found, lever),
            arguments=told,
            kind=KIND,
            sentence=why or f"{by} asked for it",
            evidence={},
            expected=None,
            undo=f"kvtide actions undo, or by itself {f'after {minutes:g} min' if minutes else 'never'}",
            lease_seconds=self._actions.policy.actions.lease_seconds,
            state_at=state.at,
            monotonic=state.monotonic,
            amends=held.id if held else "",
        )
        question = self._actions.question(plan, state, by_person=True)
        refusal = refusal_of(dataclasses.replace(question, attempt=attempt))
        if refusal is not None:
            self._book.refused(plan, refusal)
            raise OrderError(f"{refusal.code}: {refusal.text}")
        now = self._actions.wall()
        until = now + 60.0 * minutes if minutes is not None else None
        action = new_action(plan, "dry-run" if attempt else "enforce", now, None, by=by, until=until)
        done: Action | None = await self._actions.tasks.begin(engine, self._actions.run(action), action)
        if done is None:
            raise OrderError(f"journal: {self._actions.not_written or 'see the log'}")
        return done

    async def _seen(self, engine: str, lever: str) -> tuple[AgentState | None, EngineState | None]:
        """Return the last state and the engine in it: it may have connected since the last look, or be about to.

        The latter where the agent has just begun; its processes come one by one, and one of them must have the lever.
        """
        subject = Subject(scope="engine", engine=engine)
        before, last = self._actions.looked_at, time.monotonic() + NEXT_LOOK_SECONDS
        while True:
            state = self._actions.looked_at
            found = engine_of(state, subject) if state is not None else None
            now = time.monotonic()
            begun = now >= self._until
            if state and found and found.phase == "live" and (begun or targets_of(state, found, lever)):
                return state, found
            if begun and (state is not before or now >= last):
                return state, found
            await asyncio.sleep(LOOK_SECONDS)

    async def undo(self, action: str, *, by: str) -> Action:
        """Take back an action that is in force, now and not step by step."""
        found = self._book.actions.get(action)
        if found is None:
            raise UnknownError(f"action: {action!r}: is not known")
        await self._free(found.plan.subject.engine)
        found = self._book.actions[action]
        if found.phase not in LIVE_PHASES:
            base = self._book.actions.get(found.plan.amends)
            still = f"; what it has changed is: action {base.id}" if base and base.phase in LIVE_PHASES else ""
            ended = f"{found.phase}{found.reason and f' ({found.reason})'}"
            raise OrderError(f"action {action}: is not in force: {ended}{still}")
        engine = found.plan.subject.engine
        done: Action | None = await self._actions.tasks.begin(
            engine, self._actions.executor.undo(found, f"undone by {by}")
        )
        if done is None:
            raise OrderError("it went wrong: see the log")
        return done

    def veto(self, lever: str, engine: str, minutes: float, *, by: str) -> Veto:
        """Keep the agent from pulling a lever on an engine (``*``: any) for so long; what it has in force ends."""
        if lever != ANY and lever not in LEVERS:
            raise WrongError(f"lever: {lever!r}: must be * or one of {', '.join(LEVERS)}")
        if not 0 < minutes <= MOST_MINUTES:
            raise WrongError(f"minutes: {minutes:g}: must be above 0, {MOST_MINUTES:g} at most")
        now = self._actions.wall()
        standing = [each for each in self._book.vetoes if each.until > now]
        others = [each for each in standing if (each.lever, each.engine) != (lever, engine)]
        if len(others) >= MOST_VETOES:
            raise OrderError(f"veto: {len(others)} stand, {MOST_VETOES} at most; * is any lever, and any engine")
        veto = Veto(lever=lever, engine=engine, until=now + 60.0 * minutes, by=by)
        self._book.veto(veto)
        return veto

    def mark(self, engine: str, mark: str, *, by: str, minutes: float | None = None, why: str = "") -> Mark:
        """Hold an engine at the load balancer, or keep the agent's hands off it, for so long; None: until it is freed.

        The engine need not be known yet: it may be on its way.
        """
        held = next((each for each in HELD if each == mark), None)
        if held is None:
            raise WrongError(f"mark: {mark!r}: must be one of {', '.join(HELD)}")
        if not 0 < len(engine) <= MOST_NAME or not engine.isprintable():
            raise WrongError(f"engine: {engine[:40]!r}: must have 1 to {MOST_NAME} characters that can be shown")
        if minutes is not None and not 0 < minutes <= MOST_MINUTES:
            raise WrongError(f"minutes: {minutes:g}: must be above 0, {MOST_MINUTES:g} at most")
        others = [each for each in self.marks() if each.engine != engine]
        if len(others) >= MOST_MARKS:
            raise OrderError(f"mark: {len(others)} engines are held, {MOST_MARKS} at most; see: kvtide node list")
        now = self._actions.wall()
        until = None if minutes is None else now + 60.0 * minutes
        made = Mark(engine=engine, mark=held, by=by, since=now, until=until, why=why)
        self._book.mark(engine, made)
        return made

    def engines(self) -> tuple[str, ...]:
        """Return the engines that are here, by name."""
        state = self._actions.looked_at
        return () if state is None else tuple(sorted({each.engine for each in state.engines}))

    def unmark(self, engine: str) -> None:
        """Free an engine that a person holds."""
        if self._actions.mark_of(engine) is None:
            if not self._actions.opened:
                raise OrderError(f"who holds {engine} is not known yet: {self._actions.not_written}; try again")
            raise UnknownError(f"engine: {engine!r}: nobody holds it by a command")
        self._book.mark(engine, None)

    def marks(self) -> tuple[Mark, ...]:
        """Return all that persons hold by a command."""
        now = self._actions.wall()
        return tuple(each for each in self._book.marks if each.until is None or each.until > now)

    def close_breaker(self, *, by: str) -> bool:
        """Close the breaker, with a new budget; return whether it was open."""
        return self._book.close_breaker(by)

    def switch(self, *, on: bool, by: str, why: str = "") -> None:
        """Switch acting on or off on this node. Off: all that is in force is taken back, persons' orders, too."""
        self._book.switch("" if on else f"switched off by {by}{why and f': {why}'}")

    async def _free(self, engine: str) -> None:
        """Wait until nothing is being done on an engine."""
        deadline = self._actions.clock() + WAIT_SECONDS
        while self._actions.tasks.busy(engine):
            if self._actions.clock() >= deadline:
                raise OrderError(f"busy: something is being done on {engine}; try again")
            await asyncio.sleep(0.02)


def _told(arguments: Mapping[str, Argument]) -> Arguments:
    """Return what can be sent; raises :class:`OrderError`."""
    try:
        told: Arguments = msgspec.convert(dict(arguments), Arguments)
        size = len(msgspec.msgpack.encode(told))
    except msgspec.ValidationError as error:
        raise WrongError(f"arguments: {error}") from None
    except OverflowError:
        raise WrongError("arguments: a number has more than 64 bits") from None
    if size > MOST_BYTES:
        raise WrongError(f"arguments: {size:,} bytes: {MOST_BYTES:,} at most")
    return told
