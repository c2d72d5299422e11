"""An engine core around vLLM's real scheduler: a queue of what clients ask, and steps that take virtual time.

It has the methods of vLLM's own engine process that the hooks wrap, and they are wrapped as there.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from engine_hooks.simulator.clock import VirtualClock
from engine_hooks.simulator.model import make_scheduler
from engine_hooks.simulator.spec import Engine
from engine_hooks.simulator.worker import Worker

ADD, ABORT = "add", "abort"
STEP_JITTER = 0.1  # of a step's length: no two are alike


class _Queue(deque[Any]):
    def put_nowait(self, item: Any) -> None:
        """Put an item in, as into vLLM's input queue."""
        self.append(item)


class SimulatedCore:
    """One engine, from its start to its end. ``finished(request_id)`` is called for each request that ends by itself.

    ``tokens``: scheduled in the last step.
    """

    def __init__(
        self, engine: Engine, clock: VirtualClock, draw: random.Random, finished: Callable[[Any], None]
    ) -> None:
        self.engine = engine
        self.scheduler = make_scheduler(engine)
        self.vllm_config = self.scheduler.vllm_config
        self.worker = Worker(engine, self.scheduler, draw)
        self.input_queue = _Queue()
        self.tokens = 0
        self._clock = clock
        self._draw = draw
        self._finished = finished
        from vllm.v1.request import RequestStatus

        self._aborted = RequestStatus.FINISHED_ABORTED

    def run_busy_loop(self) -> bool:
        """Take in what came, and run one step if there is anything to do; return whether there was."""
        while self.input_queue:
            self._handle_client_request(*self.input_queue.popleft())
        if not self.scheduler.has_requests():
            return False
        self._process_engine_step()
        return True

    def _handle_client_request(self, request_type: Any, request: Any) -> None:
        if request_type is ADD:
            self.scheduler.add_request(request)
        elif request_type is ABORT:
            self.scheduler.finish_requests(request, self._aborted)

    def _process_engine_step(self) -> None:
        scheduler = self.scheduler
        scheduled = scheduler.schedule()
        self.tokens = scheduled.total_num_scheduled_tokens
        self._clock.now += self.engine.step_seconds * self._draw.uniform(1 - STEP_JITTER, 1 + STEP_JITTER)
        live = [scheduler.requests[key] for key in scheduled.num_scheduled_tokens]
        scheduler.update_from_output(scheduled, self.worker.run(scheduled))
        self.worker.draft(scheduled)
        for request in live:
            if request.is_finished():
                self._finished(request)

    def shutdown(self) -> None:
        """End: wrapped by the hooks, which say so."""
