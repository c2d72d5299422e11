"""What comes to a scheduler: requests, and whether those that wait get memory."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

from engine_hooks.guard import Guard

if TYPE_CHECKING:
    from engine_hooks.core.taps import Taps

Request = Any  # vllm.v1.request.Request
QUEUES = ("waiting", "kv_holding_waiting", "skipped_waiting")


def watch_arrivals(scheduler: Any, taps: Taps, guard: Guard, clock: Callable[[], float]) -> None:
    """Have ``taps`` hear of requests that are accepted, and of pieces of an input that is streamed."""
    original, unfinished = scheduler.add_request, scheduler.get_num_unfinished_requests
    tell_continued = taps.emitter(taps.continued)
    arrived = taps.arrived
    unpaused = getattr(type(getattr(scheduler, "pause_state", None)), "UNPAUSED", None)

    def alone() -> bool:
        # Counting them takes vLLM a dozen calls: where two run, and no pause hides them, there are two at least.
        busy = len(scheduler.running) > 1 and getattr(scheduler, "pause_state", None) is unpaused
        return not busy and unfinished() <= 1

    def add_request(request: Request, *args: Any, **kwargs: Any) -> Any:
        result = original(request, *args, **kwargs)
        began = perf_counter()
        try:
            known = scheduler.requests.get(request.request_id)
            piece = known is not request
            if piece:
                tell_continued(request, known)
            taps.later(arrived, request, request.num_prompt_tokens, clock(), taps.schedules, alone(), piece)
        except Exception as error:
            guard.note("taps", error)
        taps.seconds += perf_counter() - began
        return result

    scheduler.add_request = add_request


def watch_admission(scheduler: Any, taps: Taps, guard: Guard, clock: Callable[[], float]) -> Callable[[], None] | None:
    """Have ``taps`` hear of memory that is refused or granted; return what ends the watch of a step, None without one.

    ``allocate_slots`` runs once a step for every running request: a wrapper there would cost more than all the
    rest. Admission looks at the head of a waiting queue first, and only admission does: that look sets the wrapper,
    and the end of ``schedule`` takes it away.
    """
    manager: Any = getattr(scheduler, "kv_cache_manager", None)
    queues: list[Any] = [getattr(scheduler, name, None) for name in QUEUES]
    queues = [queue for queue in queues if hasattr(queue, "peek_request")]
    if not queues or not hasattr(manager, "allocate_slots"):
        taps.missing["admission"] = "the waiting queues of this vLLM have no peek_request"
        return None
    original = manager.allocate_slots
    tell_refused, tell_readmitted = taps.emitter(taps.refused), taps.emitter(taps.readmitted)
    refusals, admissions, admitted = taps.refusals, taps.admissions, taps.admitted

    def allocate_slots(request: Request, *args: Any, **kwargs: Any) -> Any:
        result = original(request, *args, **kwargs)
        began = perf_counter()
        try:
            key = request.request_id
            if result is None:
                refusals[key] = None
                taps.refused_in = taps.schedules + 1
                tell_refused(request)
            else:
                if key in refusals:
                    del refusals[key]
                    tell_readmitted(request)
                taps.grants += 1
                taps.attention = True
                admissions.append(request)
                taps.later(admitted, key, clock(), 0 if request.num_preemptions else request.num_prompt_tokens)
        except Exception as error:
            guard.note("taps", error)
        taps.seconds += perf_counter() - began
        return result

    def looking(peek: Callable[[], Request]) -> Callable[[], Request]:
        def peek_request() -> Request:
            if not taps.watching:
                taps.watching = True
                manager.allocate_slots = allocate_slots
            return peek()

        return peek_request

    for queue in queues:
        queue.peek_request = looking(queue.peek_request)

    def stop_watching() -> None:
        taps.watching = False
        # Not deleted: an object whose attributes come and go loses what the interpreter knows about it.
        manager.allocate_slots = original

    return stop_watching
