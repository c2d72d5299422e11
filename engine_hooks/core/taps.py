"""Where a scheduler is listened to: one wrapper per method, however many observers want to know.

An observer appends a function to the list of the event that it needs, before :meth:`Taps.install`. Originals run
untouched: their results and exceptions pass through, and an observer's exception is counted and goes no further.

A step has emptied the caches, so that what is done right after it costs a multiple, and each function and table that is
touched there more than what is done with it. Therefore most events of a request are one entry in a list, with what
will not be known any more; observers hear of them later, of all that have come together.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from engine_hooks.core.admission import watch_admission, watch_arrivals
from engine_hooks.core.departures import Departures
from engine_hooks.guard import Guard

Request = Any  # vllm.v1.request.Request
Listener = Callable[..., None]

MAX_LATER = 128  # calls: half a millisecond or so


class Taps:
    """Events of one scheduler, on the engine's thread. Lists of functions, called in the order of their arrival.

    ``seconds``: what hearing and telling have cost inside the engine's steps. Each wrapper adds what it does itself,
    its own looks at the clock among it, and nothing of what vLLM's method takes inside of it. By the wall: the thread's
    own time would take four times as long to look at, and who takes the core from us takes it from the step as well.

    Told later, by :meth:`take_in`, in the order in which they came; each happens at ``at``, by ``clock``:

    ``arrived(request, prompt_tokens, at, schedules, alone, piece)``: a request was accepted, or a ``piece`` of an input
    that is streamed; ``alone`` when nothing else is unfinished, ``schedules`` as it was then. ``admitted(request_id,
    at, prompt_tokens)``: one that waited got memory, ``prompt_tokens`` 0 unless for the first time, or after a
    transfer. ``departed(request, from_outside, at, entries, gone)``: it has ended, with so many ``entries`` in the
    tables of the main pool; unless it is ``gone`` its blocks are kept for a connector, and ``given_back(request_id,
    at)`` follows. ``unreturned(request_id, blocks)``: ids of blocks that did not lose one reference each when its
    blocks were given back.

    Told at once, and rare: ``finishing(ids, status)`` and ``finished(ids, status)``: around an end that came from
    outside the scheduler (a client that went away, a shutdown). ``continued(piece, request)``: a piece has come for
    ``request``. ``kept(request)``: it was let go, but the scheduler still knows it. ``put_off(request)``: its blocks
    went to the deferred frees. ``preempting(request)`` and ``preempted(request)``: around a preemption.
    ``refused(request)``: no memory for a waiting request. ``readmitted(request)``: memory for one that was refused.
    ``idle(output)``: after a step that scheduled nothing.

    Told at once, and therefore dear: ``ending(request)``: it has its final status and still holds what it held;
    ``releasing(request)`` and ``released(request)``: around the moment when its blocks are given back.
    ``scheduled(output)``: after each ``schedule()``, during which ``in_schedule`` is set. ``eventful(output)``: the
    same, but only where a request was admitted, or a listener had set ``attention``: most steps cost a few additions.
    ``updated(scheduled, output)``: after a step's output was taken in; ``settled(scheduled)``: the same, but only from
    :meth:`await_update` until no listener of it returns True.

    For events without a list: ``admissions``, requests that were admitted in this step, until ``eventful`` has been
    told; ``refusals``, requests that memory was refused to since they last ran, as keys, and ``refused_in``, the last
    step in which that happened; ``grants``, admissions so far; ``let_go``, how often a request that held blocks ended.

    ``books`` are the observers' tables by request id: who ends is dropped from them, and from ``books_of_kept`` once
    its blocks are given back.

    ``schedules``: steps so far. ``tokens``: scheduled so far; ``last_tokens``: in the last step; ``tokens_at``: when
    any were (by ``clock``). ``view``: set by who knows the tables; without it nobody hears of blocks.
    """

    def __init__(self, scheduler: Any, guard: Guard, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._guard = guard
        self._clock = clock
        self.arrived: list[Listener] = []
        self.admitted: list[Listener] = []
        self.departed: list[Listener] = []
        self.given_back: list[Listener] = []
        self.unreturned: list[Listener] = []
        self.finishing: list[Listener] = []
        self.finished: list[Listener] = []
        self.continued: list[Listener] = []
        self.kept: list[Listener] = []
        self.put_off: list[Listener] = []
        self.ending: list[Listener] = []
        self.releasing: list[Listener] = []
        self.released: list[Listener] = []
        self.preempting: list[Listener] = []
        self.preempted: list[Listener] = []
        self.refused: list[Listener] = []
        self.readmitted: list[Listener] = []
        self.idle: list[Listener] = []
        self.scheduled: list[Listener] = []
        self.eventful: list[Listener] = []
        self.updated: list[Listener] = []
        self.settled: list[Callable[..., bool]] = []
        self.admissions: list[Request] = []
        self.refusals: dict[str, None] = {}
        self.books: list[dict[str, Any]] = [self.refusals]
        self.books_of_kept: list[dict[str, Any]] = []
        self.view: Any = None
        self.missing: dict[str, str] = {}
        self.in_schedule = self.attention = False
        self.schedules = self.grants = self.let_go = 0
        self.refused_in = -1
        self.from_outside: tuple[Any, ...] = ()  # the arguments of the call that ends requests now, if one does
        self.tokens = self.last_tokens = 0
        self.tokens_at: float | None = None
        self.seconds = 0.0
        self.watching = False  # memory for requests that wait, in this step
        self._later: list[tuple[Sequence[Listener], tuple[Any, ...]]] = []
        self._stop_watching: Callable[[], None] = _nothing
        self._settling: Callable[..., Any] | None = None
        self._unsettled: Callable[..., Any] | None = None

    def install(self) -> None:
        """Wrap the methods that somebody listens to; what this vLLM lacks is noted in ``missing``."""
        watch_arrivals(self._scheduler, self, self._guard, self._clock)
        self._around("finish_requests", self.finishing, self.finished, arguments=2, always=True)
        Departures(self._scheduler, self, self._guard, self._clock).install()
        self._around("update_from_output", [], self.updated, arguments=2)
        if self.settled:
            self._watch_updates()
        self._stop_watching = watch_admission(self._scheduler, self, self._guard, self._clock) or _nothing
        self._schedule()

    def later(self, listeners: Sequence[Listener], *args: Any) -> None:
        """Have ``listeners`` called with ``args`` by the next :meth:`take_in`, in the order of these calls."""
        self._later.append((listeners, args))
        if len(self._later) >= MAX_LATER:
            self.take_in()

    def take_in(self) -> None:
        """Tell what was put off: before anybody looks, and at rest. No request is kept for longer than that."""
        if not self._later:
            return
        waiting, self._later = self._later, []
        off = self._guard.off
        for listeners, args in waiting:
            for listener in listeners:
                if off and _name(listener) in off:
                    continue
                try:
                    listener(*args)
                except Exception as error:
                    self._guard.note(_name(listener), error)

    def emitter(self, listeners: list[Listener]) -> Listener:
        """Return what calls all listeners and never raises; who calls it takes the time."""
        named = [(_name(listener), listener) for listener in listeners]
        guard, off = self._guard, self._guard.off

        def emit(*args: Any) -> None:
            for hook, listener in named:
                if off and hook in off:
                    continue
                try:
                    listener(*args)
                except Exception as error:
                    guard.note(hook, error)

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
        emit_before, emit_after = self.emitter(before), self.emitter(after)
        names = list(inspect.signature(original).parameters)[:arguments]

        def around(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            seen = args[:arguments]
            if len(seen) < arguments:
                seen += tuple(kwargs[key] for key in names[len(args) :] if key in kwargs)
            emit_before(*seen)
            self.seconds += perf_counter() - began
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if always:
                    emit_after(*seen)
                raise
            began = perf_counter()
            emit_after(*seen)
            self.seconds += perf_counter() - began
            return result

        setattr(self._scheduler, name, around)

    def _schedule(self) -> None:
        original, clock = self._scheduler.schedule, self._clock
        every = self.emitter(self.scheduled) if self.scheduled else None
        eventful, idle = self.emitter(self.eventful), self.emitter(self.idle)

        def schedule(*args: Any, **kwargs: Any) -> Any:
            self.in_schedule = True
            try:
                result = original(*args, **kwargs)
            finally:
                began = perf_counter()
                self.in_schedule = False
                if self.watching:
                    self._stop_watching()
            try:
                self.schedules += 1
                self.last_tokens = tokens = result.total_num_scheduled_tokens
                if tokens:
                    self.tokens += tokens
                    self.tokens_at = clock()
                else:
                    idle(result)
                if self.attention:
                    self.attention = False
                    eventful(result)
                    self.admissions.clear()
            except Exception as error:
                self._guard.note("taps", error)
            if every is not None:
                every(result)
            self.seconds += perf_counter() - began
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

        emit = self.emitter([tell])

        def update_from_output(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal waiting
            result = original(scheduler_output, *args, **kwargs)
            began = perf_counter()
            waiting = False
            emit(scheduler_output)
            if not waiting and scheduler.update_from_output is update_from_output:  # else another has wrapped it since
                scheduler.update_from_output = original
            self.seconds += perf_counter() - began
            return result

        self._settling = update_from_output


def _nothing() -> None:
    """There is no watch to be ended."""


def _name(listener: Listener) -> str:
    owner = getattr(listener, "__self__", None)
    return str(getattr(owner, "HOOK", None) or getattr(listener, "__name__", "tap"))
