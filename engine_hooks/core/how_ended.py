"""How a request ended: by itself, by its client, or by the engine."""

from __future__ import annotations

from typing import Any

from engine_hooks.core.taps import Taps

FINISHED, ABORTED_FRONT_END, STOP_OR_ABORT = "finished", "aborted_front_end", "stop_or_abort"
ABORTED_ENGINE, CONNECTOR_FAILURE, ERROR = "aborted_engine", "connector_failure", "error"


class HowEnded:
    """Tells how a request ended, and the taps what ends requests now, if not the scheduler itself."""

    HOOK = "how_ended"

    def __init__(self, scheduler: Any, taps: Taps) -> None:
        self._scheduler = scheduler
        self._taps = taps
        taps.finishing.append(self._finishing)
        taps.finished.append(self._finished)

    def _finishing(self, ids: Any = None, status: Any = None) -> None:
        self._taps.from_outside = (ids, status)

    def _finished(self, *_: Any) -> None:
        self._taps.from_outside = ()

    def of(self, request: Any, from_outside: tuple[Any, ...]) -> str:
        """Return how ``request``, whose status is final, ended. ``from_outside``: as ``departed`` tells it.

        The front end aborts by a list of ids: for a client that went away, or for a stop string that it found itself.
        The engine ends all requests (None) when it pauses or shuts down, a set of them on errors, and a single one when
        a streamed input was closed in order.
        """
        status = request.status.name
        if status == "FINISHED_ABORTED":
            ids = from_outside[0] if from_outside else None
            if isinstance(ids, str):
                return FINISHED
            if ids is None:
                return ABORTED_ENGINE
            stops = getattr(getattr(request, "sampling_params", None), "stop", None)
            return STOP_OR_ABORT if stops and request.num_output_tokens else ABORTED_FRONT_END
        if status == "FINISHED_ERROR":
            by_connector = (
                from_outside
                and getattr(self._scheduler, "connector", None) is not None
                and not getattr(request, "use_structured_output", False)
            )
            return CONNECTOR_FAILURE if by_connector else ERROR
        return FINISHED
