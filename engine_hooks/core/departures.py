"""How a scheduler lets requests go: one look before and one after, for all who want to know what has become of them.

When a request's blocks are given back, each must lose exactly the reference that its table held. That is looked at
there and then: later nobody could tell whose they were.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine_hooks.guard import Guard

if TYPE_CHECKING:
    from engine_hooks.core.taps import Listener, Taps

Request = Any  # vllm.v1.request.Request
HOOK = "taps"
_ref_cnt = attrgetter("ref_cnt")


class Departures:
    """Tells ``taps`` of ends and preemptions.

    Most requests end and give their blocks back in one call, ``_free_blocks`` inside ``_free_request``: that is one
    event. ``_ending`` is the request of such a call under way. Of the last that began to give blocks back: ``_entries``
    in its tables, None when ``_ending`` has not begun to, ``_held_any`` whether it held any, in other pools too;
    ``_held`` and ``_references``, its blocks and their counts; ``_deferred``, the newest of the deferred frees then;
    ``_unreturned``, ids of blocks that did not lose one reference.
    """

    __slots__ = (
        "_clock", "_deferred", "_ending", "_entries", "_guard", "_held", "_held_any", "_nulls", "_others",
        "_references", "_scheduler", "_tables", "_taps", "_tell_kept", "_tell_put_off", "_unreturned",
    )  # fmt: skip

    def __init__(self, scheduler: Any, taps: Taps, guard: Guard, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._taps = taps
        self._guard = guard
        self._clock = clock
        view = taps.view
        self._tables: tuple[Any, ...] = view.managers if view is not None else ()
        groups: tuple[Any, ...] = view.groups if view is not None else ()
        self._others = tuple(manager for manager in groups if manager not in self._tables)
        self._nulls = view is not None and view.may_hold_nulls
        self._tell_kept, self._tell_put_off = taps.emitter(taps.kept), taps.emitter(taps.put_off)
        self._ending: Request = None
        self._entries: int | None = None
        self._held_any = False
        self._held: list[Any] = []
        self._references: list[int] = []
        self._deferred: Any = None
        self._unreturned: tuple[int, ...] = ()

    def install(self) -> None:
        """Wrap the methods that let requests go; what this vLLM lacks is noted in ``taps.missing``."""
        taps = self._taps
        self._wrap("_free_request", self._letting_go)
        self._wrap(
            "_free_blocks", lambda plain: self._giving_back(plain, taps.releasing, taps.released, self._given_back)
        )
        self._wrap(
            "_preempt_request", lambda plain: self._giving_back(plain, taps.preempting, taps.preempted, self._put_back)
        )

    def _wrap(self, name: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(self._scheduler, name, None)
        if original is None:
            self._taps.missing[name] = f"{type(self._scheduler).__name__} has no {name}"
        else:
            setattr(self._scheduler, name, wrapped(original))

    def _letting_go(self, original: Callable[..., Any]) -> Callable[..., Any]:
        taps = self._taps
        tell_ending = taps.emitter(taps.ending) if taps.ending else None

        def free_request(request: Request, *args: Any, **kwargs: Any) -> Any:
            if tell_ending is not None:
                began = perf_counter()
                tell_ending(request)
                taps.seconds += perf_counter() - began
            self._ending, self._entries = request, None
            try:
                result = original(request, *args, **kwargs)
            finally:
                self._ending = None
            began = perf_counter()
            try:
                self._let_go(request)
            except Exception as error:
                self._guard.note(HOOK, error)
            taps.seconds += perf_counter() - began
            return result

        return free_request

    def _let_go(self, request: Request) -> None:
        taps, requests, entries = self._taps, self._scheduler.requests, self._entries
        key = request.request_id
        for book in taps.books:
            if book:
                book.pop(key, None)
        if entries is None:
            entries = sum(len(manager.req_to_blocks.get(key) or ()) for manager in self._tables)
            if requests.get(key) is request:
                self._tell_kept(request)
        taps.later(taps.departed, request, taps.from_outside, self._clock(), entries, key not in requests)
        if self._unreturned:
            taps.later(taps.unreturned, key, self._unreturned)
            self._unreturned = ()

    # -- blocks --------------------------------------------------------------------------------------------

    def _giving_back(
        self,
        original: Callable[..., Any],
        before: list[Listener],
        after: list[Listener],
        done: Callable[[Request, tuple[int, ...]], None],
    ) -> Callable[..., Any]:
        """Return what calls ``original`` and tells ``done`` which of the request's blocks did not come back."""
        taps = self._taps
        tell_before = taps.emitter(before) if before else None
        tell_after = taps.emitter(after) if after else None

        def give_back(request: Request, *args: Any, **kwargs: Any) -> Any:
            began = perf_counter()
            if tell_before is not None:
                tell_before(request)
            try:
                self._look(request.request_id)
            except Exception as error:
                self._guard.note(HOOK, error)
            taps.seconds += perf_counter() - began
            result = original(request, *args, **kwargs)
            began = perf_counter()
            try:
                done(request, self._compare(request))
            except Exception as error:
                self._guard.note(HOOK, error)
            if tell_after is not None:
                tell_after(request)
            taps.seconds += perf_counter() - began
            return result

        return give_back

    def _look(self, key: str) -> None:
        held: list[Any] = []
        for manager in self._tables:
            held += manager.req_to_blocks.get(key) or ()
        self._entries = len(held)
        others = self._others
        self._held_any = bool(held or (others and any(manager.req_to_blocks.get(key) for manager in others)))
        if self._nulls:
            held = [block for block in held if not block.is_null]
        self._held = held
        self._references = list(map(_ref_cnt, held))
        queue = getattr(self._scheduler, "deferred_frees", None)
        self._deferred = queue[-1] if queue else None

    def _compare(self, request: Request) -> tuple[int, ...]:
        """Return the ids of the blocks that kept a reference since :meth:`_look`, or lost one too many."""
        held, before, self._held, self._references = self._held, self._references, [], []
        queue = getattr(self._scheduler, "deferred_frees", None)
        if queue and queue[-1] is not self._deferred:
            self._tell_put_off(request)
            return ()  # given back when the step in flight has ended
        after = list(map(_ref_cnt, held))
        if sum(after) == sum(before) - len(held):
            return ()
        return tuple(b.block_id for b, was, now in zip(held, before, after, strict=True) if now != was - 1)

    def _given_back(self, request: Request, unreturned: tuple[int, ...]) -> None:
        taps, key = self._taps, request.request_id
        taps.let_go += self._held_any
        for book in taps.books_of_kept:
            if book:
                book.pop(key, None)
        if self._ending is request:
            self._unreturned = unreturned  # told with its end
            return
        if key not in self._scheduler.requests:
            taps.later(taps.given_back, key, self._clock())
        self._put_back(request, unreturned)

    def _put_back(self, request: Request, unreturned: tuple[int, ...]) -> None:
        if unreturned:
            self._taps.later(self._taps.unreturned, request.request_id, unreturned)
