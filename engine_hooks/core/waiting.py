"""Why requests wait, and what stands in the way when nothing moves.

A waiting request either waits for something of its own (a transfer, a grammar, input), or the scheduler's look through
the queue ended before it: then it waits for what ended that look, as all behind it do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from engine_hooks.core.observers import Context
from engine_hooks.core.silence import SILENT_SECONDS, Silence
from engine_hooks.detail import WaitingRow

MAX_LOOKED_AT = 1000  # requests in one section: about a millisecond
OWN_REASONS = {
    "WAITING_FOR_REMOTE_KVS": "remote_kv",
    "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR": "grammar",
    "WAITING_FOR_FSM": "grammar",
    "WAITING_FOR_STREAMING_REQ": "streaming_input",
}
OBSTACLES = ("slots", "remote_kv", "grammar", "encoder_budget", "lora", "skipped")  # of a stall, besides memory


class WaitingObserver:
    """Fills ``waiting``.

    Reasons: ``remote_kv``, ``grammar``, ``streaming_input``, ``paused`` (on purpose), ``preempted`` (put back for
    memory), ``memory``, ``slots`` (as many run as may), ``lora`` (as many adapters run as may), ``token_budget`` (of a
    step), ``encoder_budget``, ``skipped`` (passed over for another reason), ``queued`` (not looked at yet), ``other``.
    """

    HOOK = "waiting"
    SECTION = "waiting"

    def __init__(self, context: Context) -> None:
        from vllm.v1.request import RequestStatus

        self._scheduler = context.scheduler
        self._clock = context.clock
        self._own = {
            RequestStatus[name]: reason for name, reason in OWN_REASONS.items() if name in RequestStatus.__members__
        }
        self._plain, self._preempted = RequestStatus.WAITING, RequestStatus.PREEMPTED
        self._refused = context.taps.refusals
        self._new: dict[str, None] = {}  # those that came last, after ``_new_after`` steps
        self._new_after = 0
        self._idle_steps = 0
        self._idle_tokens = self._section_tokens = 0  # scheduled when a step last had none; at the last section
        self._still_since: float | None = None  # seconds: work is there, and none was scheduled since
        self._taps = context.taps
        self._silence = Silence()
        self._section_steps = 0
        context.taps.arrived.append(self._arrived)
        context.taps.departed.append(self._departed)
        context.taps.idle.append(self._idle)

    # -- events --------------------------------------------------------------------------------------------

    def _arrived(self, request: Any, _tokens: int, at: float, schedules: int, alone: bool, _piece: bool) -> None:
        if schedules != self._new_after:
            self._new.clear()
            self._new_after = schedules
        self._new[request.request_id] = None
        # What comes to an engine that had nothing to do has not been waiting since the last tokens.
        if self._still_since is None or alone:
            self._still_since = at

    def _departed(self, request: Any, *_: Any) -> None:
        self._new.pop(request.request_id, None)

    def _idle(self, _output: Any) -> None:
        if self._has_work():
            self._idle_steps = 1 + self._steps_without_tokens()
            self._idle_tokens = self._taps.tokens

    @property
    def _refused_last(self) -> bool:
        """Whether memory was refused in the last step."""
        return self._taps.refused_in == self._taps.schedules

    def _steps_without_tokens(self) -> int:
        """Steps in a row that had work and scheduled none of it."""
        return self._idle_steps if self._taps.tokens == self._idle_tokens else 0

    # -- the section ---------------------------------------------------------------------------------------

    def section(self, now: float) -> WaitingRow:
        """Return why requests wait; at most ``MAX_LOOKED_AT`` of them are looked at."""
        self._taps.take_in()
        reasons: dict[str, int] = {}
        looked = 0
        for reason in islice(self._reasons(), MAX_LOOKED_AT):
            reasons[reason] = reasons.get(reason, 0) + 1
            looked += 1
        stalled = self._stalled_seconds(now)
        if stalled is None:
            stalled_by = "paused" if "paused" in reasons or self._pause() == "PAUSED_ALL" else ""
        else:
            stalled_by = self._obstacle(reasons)
        return WaitingRow(
            reasons=reasons,
            idle_steps=self._steps_without_tokens(),
            stalled_seconds=stalled,
            stalled_by=stalled_by,
            unseen=sum(map(len, self._queues())) - looked,
            silent=self._silent(now),
        )

    def _silent(self, now: float) -> int:
        """Running requests that decode and have got no token for half a minute of steps."""
        running, steps = self._scheduler.running, self._taps.schedules
        self._silence.look(running, now, stepped=steps != self._section_steps)
        self._section_steps = steps
        return len(self._silence.longer_than(SILENT_SECONDS, running))

    def _stalled_seconds(self, now: float) -> float | None:
        moved = self._taps.tokens != self._section_tokens
        self._section_tokens = self._taps.tokens
        if not self._has_work():
            self._still_since = None
            self._idle_steps = 0
            return None
        if self._still_since is None:
            self._still_since = now
        return None if moved else max(0.0, now - max(self._still_since, self._taps.tokens_at or 0.0))

    def _has_work(self) -> bool:
        """Whether tokens should be scheduled: not when paused on purpose, nor when all sessions wait for input."""
        return self._pause() != "PAUSED_ALL" and self._scheduler.get_num_unfinished_requests() > 0

    def _pause(self) -> str:
        return getattr(getattr(self._scheduler, "pause_state", None), "name", "UNPAUSED")

    def _queues(self) -> list[Any]:
        """The waiting queues that this vLLM has, those that may go on under a pause of new requests first."""
        names = ("kv_holding_waiting", "waiting", "skipped_waiting")
        return [queue for name in names if (queue := getattr(self._scheduler, name, None)) is not None]

    def _reasons(self) -> Iterator[str]:
        scheduler, pause = self._scheduler, self._pause()
        holding, skipped = (getattr(scheduler, name, None) for name in ("kv_holding_waiting", "skipped_waiting"))
        deferred = getattr(scheduler, "deferred_waiting", ())
        adapters = self._adapters_in_full_use()
        behind = ""
        for queue in self._queues():
            paused = pause == "PAUSED_ALL" or (pause != "UNPAUSED" and queue is not holding)
            # A priority queue sorts itself to be walked; its heap has the head first too.
            for request in getattr(queue, "_heap", queue):
                reason = self._own_reason(request, paused)
                if reason:
                    yield reason
                elif adapters and request.lora_request and request.lora_request.lora_int_id not in adapters:
                    yield "lora"
                elif queue is skipped or request in deferred:
                    yield "skipped"
                elif request.request_id in self._new and self._new_after == self._taps.schedules:
                    yield "queued"
                else:
                    behind = behind or self._end_of_look(request)
                    yield behind

    def _own_reason(self, request: Any, paused: bool) -> str:
        """Why this request waits whatever is before it in the queue, or an empty string."""
        status = request.status
        if status is not self._plain and status in self._own:  # an enumeration's hash is slow
            return self._own[status]
        if paused:
            return "paused"
        if status is self._preempted:
            return "preempted"
        return "memory" if request.request_id in self._refused else ""

    def _adapters_in_full_use(self) -> set[int]:
        """The adapters that running requests use, if they are as many as may be used in one step."""
        config = getattr(self._scheduler, "lora_config", None)
        if config is None:
            return set()
        used = {request.lora_request.lora_int_id for request in self._scheduler.running if request.lora_request}
        return used if len(used) >= config.max_loras else set()

    def _end_of_look(self, head: Any) -> str:
        """What ended the scheduler's last look through the queue, before or at ``head``."""
        scheduler = self._scheduler
        most = getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs)
        if len(scheduler.running) + getattr(scheduler, "num_waiting_for_streaming_input", 0) >= most:
            return "slots"
        if self._refused_last:
            return "memory"
        if self._taps.last_tokens >= scheduler.max_num_scheduled_tokens:
            return "token_budget"
        return "encoder_budget" if head.has_encoder_inputs else "other"

    def _obstacle(self, reasons: dict[str, int]) -> str:
        """What stands in the way of an engine that has work and schedules none."""
        scheduler = self._scheduler
        # A running request that gets nothing and is not put back is one that no block was found for either.
        if self._refused_last or scheduler.running:
            if getattr(scheduler, "deferred_frees", None):
                return "deferred_frees"
            known = len(scheduler.running) + sum(map(len, self._queues()))
            if len(scheduler.requests) > known:
                return "delayed_frees"
            if self._refused_last:
                return "memory"
        for reason in OBSTACLES:
            if reason in reasons:
                return reason
        return "encoder_budget" if any(request.has_encoder_inputs for request in scheduler.running) else "unknown"
