"""One engine's reporter: what runs on the engine's own thread after each step, and when it is woken.

The engine's thread calls :meth:`after_step` and :meth:`on_wake`; the link's side threads call the rest. Between them go
a deque of orders, attributes that one thread writes and the other reads, the time when a step has more to do than to be
counted (anybody may set it to 0), and messages, which are handed over whole: copies, of no object of the engine's.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import msgspec

from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.core.accounts import KVAccounts
from engine_hooks.core.audit import SLICE_SECONDS
from engine_hooks.core.delayed import transfer_id
from engine_hooks.core.how_ended import HowEnded
from engine_hooks.core.levers.at_rest import AtRest
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.registry import LEVERS
from engine_hooks.core.observers import Context, Observer, Section, UnsupportedError
from engine_hooks.core.registry import OBSERVERS
from engine_hooks.core.steps import TIMED_STEPS
from engine_hooks.core.taps import Taps
from engine_hooks.core.view import SchedulerView
from engine_hooks.detail import Detail
from engine_hooks.guard import Guard
from engine_hooks.identity import Identity
from engine_hooks.levers.desk import LeverDesk, build
from engine_hooks.link import AgentLink, LinkCallbacks
from engine_hooks.own_memory import OwnMemory
from engine_hooks.settings import Settings
from engine_hooks.wire_types import Message

BUSY_PERIOD, LONGEST_BUSY_PERIOD = 0.1, 0.2
REPORT_DUTY = 0.0003  # reports may take this share of the engine thread's time, as far as their period allows
IDLE_PERIOD = 1.0
DETAIL_PERIOD, LONGEST_DETAIL_PERIOD = 1.0, 2.0
DETAIL_SLICE = 0.0003
DETAIL_DUTY = 0.0005  # the detail may take this share of the engine thread's time, as far as its period allows
IDLE_SLICE_SECONDS = 0.002  # what a request that arrives at an idle engine may have to wait
MAX_ORDERS = 64
_MORE = object()

clock = time.perf_counter


class EngineReporter:
    """Watches one EngineCore and tells the agent. ``wake`` puts our sentinel into the engine's input queue."""

    def __init__(self, engine: Any, settings: Settings, wake: Callable[[], None] | None) -> None:
        # The side thread holds us: an engine that is dropped without a shutdown must not be held by its own levers.
        self._engine = weakref.proxy(engine)
        self._wake = wake
        self._waking = False
        self._guard = Guard()
        self._identity = Identity.of(engine, settings, in_process=wake is None)
        self._view = SchedulerView(engine.scheduler)
        self._accounts = KVAccounts(self._view, self._guard, pin_seconds=settings.pin_seconds)
        self._taps = Taps(engine.scheduler, self._guard)
        self._settings = settings
        self._observers: dict[str, Observer] = {}
        self._sections: dict[str, Any] | None = None  # of the Detail that is being put together
        self._unasked: list[str] = []
        self._asked: Generator[None, None, Section] | None = None  # the section that is being made in pieces
        self._detail_seconds = self._detail_began = 0.0  # what the last one cost, and when it was begun
        self._unsupported: dict[str, str] = {}
        self._orders: deque[tuple[wire.Order, float]] = deque()  # with when each came
        self._sequence = 0
        self._steps = self._accounts.steps
        self._next_report = self._next_check = self._next_detail = 0.0
        self._last_report = time.monotonic()
        self._audit_wants_more = False
        self._rested = True
        self._pool_info = self._view.pool_info()
        self._at_rest = AtRest()
        self._desk = LeverDesk(self._identity.instance, {}, unsupported={}, allowed=(), guard=self._guard, clock=clock)
        self._memory = OwnMemory()
        self._link = AgentLink(settings, LinkCallbacks(self._hello, self._order, self._tick, self._request_report))

    def start(self) -> None:
        """Wrap the pool, test the accounts and start the link."""
        self._guard.run("start", self._accounts.start)
        context = Context(
            self._view.scheduler,
            self._view,
            self._taps,
            self._guard,
            self._settings,
            self._accounts,
            clock=time.monotonic,
            how_ended=HowEnded(self._view.scheduler, self._taps),
        )
        for make in OBSERVERS:
            self._guard.run(make.HOOK, self._observe, make, context)
        self._guard.run("taps", self._taps.install)
        self._unsupported.update(self._taps.missing)
        self._guard.run("levers", self._open_desk, context)
        self._link.start()

    def _observe(self, make: type[Observer], context: Context) -> None:
        try:
            self._observers[make.SECTION] = make(context)
        except UnsupportedError as reason:
            self._unsupported[make.SECTION] = str(reason)

    def _open_desk(self, context: Context) -> None:
        scheduler, view, guard, settings = context.scheduler, context.view, context.guard, context.settings
        own = LeverContext(
            self._engine,
            scheduler,
            view,
            self._taps,
            self._accounts,
            self._observers,
            guard,
            settings,
            clock,
            in_force=lambda: tuple(lease.lever for lease in self._desk.in_force()),
        )
        self._at_rest = own.at_rest
        levers, unsupported = build((make.NAME, functools.partial(make, own)) for make in LEVERS)
        self._desk = LeverDesk(
            self._identity.instance,
            levers,
            unsupported=unsupported,
            allowed=settings.levers,
            guard=guard,
            clock=clock,
        )

    def close(self) -> None:
        """Say nothing more. The wrappers stay: they only count."""
        self._link.close()

    # -- the engine's thread ------------------------------------------------------------------------------

    def after_step(self, began: float) -> None:
        """Count a step that began at ``began`` (perf_counter); audit a slice and report when due. Never raises."""
        ended = clock()
        steps = self._steps
        steps.number += 1
        steps.seconds += ended - began
        if ended < steps.due and steps.requests:
            # Nine steps in ten: the pool's range is all that is to be noted. As in :meth:`Steps.observe`, but here:
            # each function that is called now would cost as much as all this.
            try:
                free = steps.queue.num_free_blocks
                if free > steps.high:
                    steps.high = free
                if free < steps.low:
                    steps.low = free
                steps.turn = turn = (steps.turn + 1) % TIMED_STEPS
                if turn < 2:
                    steps.time()
            except Exception as error:
                self._guard.note("counters", error)
            # By the wall: reading the thread's CPU time would cost as much as all this.
            steps.hook_seconds += clock() - ended
            return
        cpu = time.thread_time()
        self._waking = False  # should a wake-up ever get lost, the next one is sent all the same
        self._guard.run("step", self._work, ended)
        steps.hook_seconds += time.thread_time() - cpu

    def on_wake(self) -> None:
        """Run when our sentinel comes out of the input queue: orders, and an idle engine's report. Never raises."""
        cpu = time.thread_time()
        self._waking = False
        self._guard.run("wake", self._work, clock(), force=True)
        wanted = bool(self._guard.run("at_rest", self._rest))
        # At rest no step gives the audit its next slice. Not by a wake-up of our own from here: the engine drains its
        # queue before it goes on, and in a data-parallel group the others wait for it.
        self._link.hurry = wanted or (self._audit_wants_more and self._rested)
        if self._steps.requests:  # else no step waits for us
            self._steps.hook_seconds += time.thread_time() - cpu

    def _rest(self) -> bool:
        """Do what is for a while in which nothing runs; return whether more is wanted."""
        return self._resting() and bool(self._at_rest.run())

    def _work(self, now: float, *, force: bool = False) -> None:
        woken = force  # no step follows for a while: what is to be told is told now
        while self._orders:
            self._execute(*self._orders.popleft())
            force = True
        if now >= self._desk.next_expiry:
            for result in self._desk.tick():
                self._send("orders", result)
            force = True
        self._guard.run("counters", self._accounts.observe_step)
        # Coming to rest is told at once: the next step may be hours away.
        resting = self._resting()
        due = force or now >= self._next_report or (resting and not self._rested)
        self._rested = resting
        if now >= self._next_check and not due:
            # Where sending costs much, reports are rarer; what has leaked is seen all the same, and told at once.
            self._next_check = now + BUSY_PERIOD
            due = bool(self._guard.run("accounts", self._accounts.unbalanced))
        if due or self._audit_wants_more:
            slice_seconds = IDLE_SLICE_SECONDS if resting else SLICE_SECONDS
            self._audit_wants_more = bool(self._guard.run("audit", self._accounts.advance_audit, slice_seconds))
        if resting or woken or not self._link.up:  # else each detail does, and the more there is, the cheaper is each
            self._taps.take_in()
        if due:
            began = time.thread_time()
            if self._link.up:
                self._guard.run("report", self._send_report)
            period = min(LONGEST_BUSY_PERIOD, max(BUSY_PERIOD, (time.thread_time() - began) / REPORT_DUTY))
            self._next_report, self._next_check = now + period, now + min(BUSY_PERIOD, period)
            self._last_report = time.monotonic()
        if self._sections is not None or (self._link.up and now >= self._next_detail):
            self._guard.run("detail", self._advance_detail, now, at_once=resting or woken)
        pending = self._audit_wants_more or self._sections is not None or "counters" in self._guard.off
        # The first step after a rest comes here too: at its end the engine may rest again, and that is to be seen.
        pending = pending or resting
        steps = self._steps
        steps.requests = self._view.scheduler.requests
        steps.due = 0.0 if pending else min(self._next_check, self._next_report, self._desk.next_expiry)
        if self._orders:  # since we looked: whoever brought them has set it to 0 before we did this
            steps.due = 0.0

    def _resting(self) -> bool:
        return not self._view.scheduler.requests

    def _execute(self, order: wire.Order, came: float) -> None:
        if order.kind == wire.LEVER and order.action is not None:
            self._send("orders", self._desk.execute(order.action, clock() - came))
            return
        if order.kind == wire.CHECK:
            self._accounts.request_audit()
            result = wire.OrderResult(sequence=order.sequence, ok=True)
        else:
            result = wire.OrderResult(sequence=order.sequence, ok=False, detail=f"unknown order {order.kind[:32]!r}")
        self._send("orders", result)

    def _send(self, hook: str, message: Message) -> None:
        """Have a message sent, after those before it, by a thread that may be kept from it."""
        self._link.later(functools.partial(self._guard.run, hook, self._link.send, message))

    def _send_report(self) -> None:
        running, waiting = self._view.running_and_waiting()
        self._sequence += 1
        self._send(
            "report",
            wire.Report(
                sequence=self._sequence,
                monotonic=time.monotonic(),
                steps=self._steps.number,
                running=running,
                waiting=waiting,
                requests=self._view.requests(),
                pool=self._guard.run("accounts", self._accounts.report),
                hooks=wire.HookReport(
                    errors=dict(self._guard.errors),
                    off=dict(self._guard.off),
                    dropped_frames=self._link.dropped,
                    hook_seconds=self._steps.hook_seconds + self._accounts.ledger_seconds + self._taps.seconds,
                    step_seconds=self._steps.seconds,
                ),
                in_force=self._desk.in_force(),
            ),
        )

    def _advance_detail(self, now: float, *, at_once: bool) -> None:
        """Ask observers for their sections, for a slice of time or ``at_once``; send the Detail when all have answered.

        All in one step would be felt as a pause; one a step would pay twelve times for what each such step costs.
        """
        began = time.thread_time()
        if self._sections is None:
            self._next_detail = now + min(LONGEST_DETAIL_PERIOD, max(DETAIL_PERIOD, self._detail_seconds / DETAIL_DUTY))
            self._detail_seconds, self._detail_began = 0.0, now
            self._sections, self._unasked = {}, list(self._observers)
            self._taps.take_in()
        # Where steps are long, a millisecond is not felt, but a detail spread over many of them would be old.
        at_once = at_once or now - self._detail_began > DETAIL_PERIOD / 2
        while self._unasked:
            name = self._unasked[-1]
            if self._guard.run(self._observers[name].HOOK, self._ask, name, self._sections) is not _MORE:
                self._unasked.pop()
                self._sections.setdefault(name, None)
                self._asked = None
            if not at_once and time.thread_time() - began >= DETAIL_SLICE:
                break
        if not self._unasked:
            sections, self._sections = self._sections, None
            transfer = transfer_id(self._view.scheduler)
            self._link.later(
                functools.partial(self._guard.run, "detail", self._send_detail, sections, time.monotonic(), transfer)
            )
        self._detail_seconds += time.thread_time() - began

    def _ask(self, name: str, sections: dict[str, Any]) -> object:
        """Put the section of ``name`` among ``sections``, or return that it takes more than this slice."""
        if self._asked is None:
            section = self._observers[name].section(time.monotonic())
            if not isinstance(section, Generator):
                sections[name] = section
                return None
            self._asked = section
        try:
            next(self._asked)
        except StopIteration as end:
            sections[name] = end.value
            return None
        return _MORE

    def _send_detail(self, sections: dict[str, Any], now: float, transfer: str) -> None:
        """Send the sections as they were at ``now``; not on the engine's thread, of whose objects they are copies."""
        unsupported = dict(self._unsupported)
        while True:
            detail = Detail(monotonic=now, transfer_id=transfer, unsupported=unsupported, **sections)
            try:
                return self._link.send(detail)
            except wire.WireError:
                # Every row of every section with the longest names: the rest of it is worth more than nothing.
                longest = max(sections, key=lambda name: len(msgspec.msgpack.encode(sections[name])))
                del sections[longest]
                unsupported[longest] = "with all other sections it is too long for a frame"

    # -- the link's side thread ---------------------------------------------------------------------------

    def _hello(self, session: Session) -> wire.Hello:
        desk = self._desk
        support = self._accounts.support
        return self._identity.hello(
            session, self._pool_info, support, IDLE_PERIOD, levers=desk.rows(), in_force=desk.in_force()
        )

    def _order(self, order: wire.Order) -> None:
        if len(self._orders) >= MAX_ORDERS:  # else the oldest would vanish without an answer
            self._link.turn_away(order, f"{MAX_ORDERS} orders wait for the engine to end a step")
            return
        self._orders.append((order, clock()))
        self._steps.due = 0.0
        self._wake_engine()

    def _request_report(self) -> None:
        self._memory.again()
        self._next_report = self._next_check = self._next_detail = self._steps.due = 0.0
        self._wake_engine()

    def _tick(self) -> Message | None:
        now = time.monotonic()
        silent = now - self._last_report
        if silent >= IDLE_PERIOD - 0.05 or self._link.hurry:
            self._wake_engine()
        memory = self._guard.run("memory", self._memory.fresh, now) if self._link.up else None
        if memory is None and silent < 2 * IDLE_PERIOD:
            return None
        return wire.Heartbeat(silent_seconds=silent, memory=memory)

    def _wake_engine(self) -> None:
        # One sentinel at a time: an engine that is stuck in a step must not find hundreds of them.
        if self._wake is not None and not self._waking:
            self._waking = True
            self._wake()
