"""Where a scheduler is listened to: one wrapper per method, however many observers want to know.

An observer appends a function to the list of the event that it needs, before :meth:`Taps.install`. Originals run
untouched: their results and exceptions pass through, and an observer's exception is counted and goes no further.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import Any

from engine_hooks.guard import Guard

Request = Any  # vllm.v1.request.Request
Listener = Callable[..., None]

MAX_LATER = 128  # calls: half a millisecond or so
TIMED_CALLS = 17  # a prime: events come in patterns, and not always the same one may be timed


class Taps:
    """Events of one scheduler, on the engine's thread. Lists of functions, called in the order of their arrival.

    ``seconds``: what the listeners have cost inside the engine's steps, from one event in seventeen.

    ``added(request)``: a new request was accepted. ``finishing(ids, status)`` and ``finished(ids, status)``: around an
    end that came from outside the scheduler (a client that went away, a shutdown). ``ending(request)``: it has its
    final status and still holds what it held; ``ended(request)``: it was let go, or its blocks are kept for a connector
    (then it is still in ``scheduler.requests``). ``releasing(request)`` and ``released(request)``: around the moment
    when a finished request's blocks are given back. ``preempting(request)`` and ``preempted(request)``: around a
    preemption. ``refused(request)`` and ``granted(request)``: memory for a waiting request.

    ``scheduled(output)``: after each ``schedule()``, during which ``in_schedule`` is set. ``eventful(output)``: the
    same, but only after a step that scheduled nothing, or for which a listener had set ``attention``: most steps are
    neither, and cost a few additions. ``updated(scheduled, output)``: after a step's output was taken in;
    ``settled(scheduled)``: the same, but only from :meth:`await_update` until no listener of it returns True.

    What an event means for the accounts can mostly wait: a listener notes what will not be known any more, and has the
    rest done by :meth:`later`. A step has emptied the caches, so that the same work costs a multiple there.

    ``tokens``: scheduled so far; ``last_tokens``: in the last step; ``tokens_at``: when any were (by ``clock``).
    """

    def __init__(self, scheduler: Any, guard: Guard, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._guard = guard
        self._clock = clock
        self.added: list[Listener] = []
        self.finishing: list[Listener] = []
        self.finished: list[Listener] = []
        self.ending: list[Listener] = []
        self.ended: list[Listener] = []
        self.releasing: list[Listener] = []
        self.released: list[Listener] = []
        self.preempting: list[Listener] = []
        self.preempted: list[Listener] = []
        self.scheduled: list[Listener] = []
        self.eventful: list[Listener] = []
        self.updated: list[Listener] = []
        self.settled: list[Callable[..., bool]] = []
        self.refused: list[Listener] = []
        self.granted: list[Listener] = []
        self.missing: dict[str, str] = {}
        self.in_schedule = self.attention = False
        self.tokens = self.last_tokens = 0
        self.tokens_at: float | None = None
        self.seconds = 0.0
        self._calls = 0
        self._later: list[tuple[Listener, tuple[Any, ...]]] = []
        self._watching = False  # memory for requests that wait, in this step
        self._stop_watching: Callable[[], None] = _nothing
        self._settling: Callable[..., Any] | None = None
        self._unsettled: Callable[..., Any] | None = None

    def install(self) -> None:
        """Wrap the methods that somebody listens to; what this vLLM lacks is noted in ``missing``."""
        self._around("add_request", [], self.added)
        self._around("finish_requests", self.finishing, self.finished, arguments=2, always=True)
        self._around("_free_request", self.ending, self.ended)
        self._around("_free_blocks", self.releasing, self.released)
        self._around("_preempt_request", self.preempting, self.preempted)
        self._around("update_from_output", [], self.updated, arguments=2)
        if self.settled:
            self._watch_updates()
        if self.refused or self.granted:
            self._watch_admission()
        self._schedule()

    def later(self, function: Listener, *args: Any) -> None:
        """Have ``function`` called with ``args`` by the next :meth:`take_in`, in the order of these calls."""
        self._later.append((function, args))
        if len(self._later) >= MAX_LATER:
            self.take_in()

    def take_in(self) -> None:
        """Do what was put off: before anybody looks, and at rest. No request is kept for longer than that."""
        if not self._later:
            return
        waiting, self._later = self._later, []
        off = self._guard.off
        for function, args in waiting:
            if off and _name(function) in off:
                continue
            try:
                function(*args)
            except Exception as error:
                self._guard.note(_name(function), error)

    def _emitter(self, listeners: list[Listener]) -> Listener:
        """Return what calls all listeners; one call in seventeen by the clock, for all of them in ``seconds``."""
        named = [(_name(listener), listener) for listener in listeners]
        guard, off = self._guard, self._guard.off

        def emit(*args: Any) -> None:
            self._calls += 1
            began = 0.0 if self._calls % TIMED_CALLS else time.thread_time()
            for hook, listener in named:
                if off and hook in off:
                    continue
                try:
                    listener(*args)
                except Exception as error:
                    guard.note(hook, error)
            if began:
                self.seconds += TIMED_CALLS * (time.thread_time() - began)

        return emit

    def _around(
        self, name: str, before: list[Listener], after: list[Listener], arguments: int = 1, *, always: bool = False
    ) -> None:
        """Wrap ``name``: listeners get its first ``arguments`` arguments; ``after`` if it returns, or ``always``."""
        if not before and not after:
            return
        original = getattr(self._scheduler, name, None)
        if original is None:
            self.missing[name] = f"{type(self._scheduler).__name__} has no {name}"
            return
        emit_before = self._emitter(before) if before else None
        emit_after = self._emitter(after)
        names = list(inspect.signature(original).parameters)[:arguments]

        def around(*args: Any, **kwargs: Any) -> Any:
            seen = args[:arguments]
            if len(seen) < arguments:
                seen += tuple(kwargs[key] for key in names[len(args) :] if key in kwargs)
            if emit_before is not None:
                emit_before(*seen)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if always:
                    emit_after(*seen)
                raise
            emit_after(*seen)
            return result

        setattr(self._scheduler, name, around)

    def _schedule(self) -> None:
        original, clock = self._scheduler.schedule, self._clock
        every = self._emitter(self.scheduled) if self.scheduled else None
        eventful = self._emitter(self.eventful)

        def schedule(*args: Any, **kwargs: Any) -> Any:
            self.in_schedule = True
            try:
                result = original(*args, **kwargs)
            finally:
                self.in_schedule = False
                if self._watching:
                    self._stop_watching()
            try:
                self.last_tokens = tokens = result.total_num_scheduled_tokens
                if tokens:
                    self.tokens += tokens
                    self.tokens_at = clock()
                if self.attention or not tokens:
                    self.attention = False
                    eventful(result)
            except Exception as error:
                self._guard.note("taps", error)
            if every is not None:
                every(result)
            return result

        self._scheduler.schedule = schedule

    def await_update(self) -> None:
        """Have the listeners of ``settled`` hear of the outputs that are taken in from now on."""
        if self._settling is not None and self._scheduler.update_from_output == self._unsettled:
            self._scheduler.update_from_output = self._settling

    def _watch_updates(self) -> None:
        """Prepare the wrapper that is there only while somebody waits for a step's output: most of the time nobody."""
        scheduler, listeners = self._scheduler, self.settled
        self._unsettled = original = scheduler.update_from_output
        waiting = False

        def tell(output: Any) -> None:
            nonlocal waiting
            for listener in listeners:
                waiting = listener(output) or waiting

        emit = self._emitter([tell])

        def update_from_output(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal waiting
            result = original(scheduler_output, *args, **kwargs)
            waiting = False
            emit(scheduler_output)
            if not waiting and scheduler.update_from_output is update_from_output:  # else another has wrapped it since
                scheduler.update_from_output = original
            return result

        self._settling = update_from_output

    def _watch_admission(self) -> None:
        """Tell whether memory was refused or granted to requests that wait.

        ``allocate_slots`` runs once a step for every running request: a wrapper there would cost more than all the
        rest. Admission looks at the head of a waiting queue first, and only admission does: that look sets the wrapper,
        and the end of ``schedule`` takes it away.
        """
        manager: Any = getattr(self._scheduler, "kv_cache_manager", None)
        names = ("waiting", "kv_holding_waiting", "skipped_waiting")
        queues: list[Any] = [getattr(self._scheduler, name, None) for name in names]
        queues = [queue for queue in queues if hasattr(queue, "peek_request")]
        if not queues or not hasattr(manager, "allocate_slots"):
            self.missing["admission"] = "the waiting queues of this vLLM have no peek_request"
            return
        original = manager.allocate_slots
        refused, granted = self._emitter(self.refused), self._emitter(self.granted)

        def allocate_slots(request: Request, *args: Any, **kwargs: Any) -> Any:
            result = original(request, *args, **kwargs)
            if result is None:
                refused(request)
            else:
                granted(request)
            return result

        def looking(peek: Callable[[], Request]) -> Callable[[], Request]:
            def peek_request() -> Request:
                if not self._watching:
                    self._watching = True
                    manager.allocate_slots = allocate_slots
                return peek()

            return peek_request

        for queue in queues:
            queue.peek_request = looking(queue.peek_request)

        def stop_watching() -> None:
            self._watching = False
            # Not deleted: an object whose attributes come and go loses what the interpreter knows about it.
            manager.allocate_slots = original

        self._stop_watching = stop_watching


def _nothing() -> None:
    """There is no watch to be ended."""


def _name(listener: Listener) -> str:
    owner = getattr(listener, "__self__", None)
    return str(getattr(owner, "HOOK", None) or getattr(listener, "__name__", "tap"))
