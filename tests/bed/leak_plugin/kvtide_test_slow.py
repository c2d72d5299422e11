"""A vLLM plugin whose steps last as long as a GPU's, without computing: what is streamed outlasts what is done to it.

It is idle unless ``KVTIDE_TEST_STEP_SECONDS`` is set: so long the worker sleeps before each step in which it computes.
The tiny model is through with the longest answer within three seconds, on a good day.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Any

VARIABLE = "KVTIDE_TEST_STEP_SECONDS"


def _slowly(original: Any, seconds: float) -> Any:
    @functools.wraps(original)
    def execute_model(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if scheduler_output.total_num_scheduled_tokens:
            time.sleep(seconds)
        return original(self, scheduler_output, *args, **kwargs)

    return execute_model


def register() -> None:
    """Entry point ``vllm.general_plugins``: slow the worker down, if asked to by the environment."""
    seconds = os.environ.get(VARIABLE)
    if not seconds:
        return
    from vllm.v1.worker.gpu_worker import Worker  # the CPU's is derived from it

    if VARIABLE not in vars(Worker.execute_model):
        Worker.execute_model = _slowly(Worker.execute_model, float(seconds))
        setattr(Worker.execute_model, VARIABLE, seconds)
