"""An executor without workers: it sleeps as long as a GPU would take for a step, and makes up the tokens."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from tests.bed.scheduler import fake_output

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
import torch
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.request import Request

BLOCK_SIZE = 16
# More than any pool asked for: the number of blocks comes from the command line.
FAKE_MEMORY_BYTES = 1 << 40
KEPT_STEPS = 100_000


class FakeExecutor(Executor):
    """Answers what the engine asks its workers at start; a step takes ``step_seconds`` and one token each."""

    supports_pp = False
    step_seconds = 0.0

    def _init_executor(self) -> None:
        self.requests: dict[str, Request] = {}
        self.step_times: deque[float] = deque(maxlen=KEPT_STEPS)

    def collective_rpc(
        self, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        """Return the one worker's answer, in a list."""
        spec = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=32, dtype=torch.float32)
        answers = {
            "get_kv_cache_spec": {"model.layers.0.self_attn": spec},
            "get_supported_kv_cache_layouts": ["NHD", "HND"],
            "determine_available_memory": FAKE_MEMORY_BYTES,
            "get_supported_tasks": ("generate",),
        }
        answer = [answers.get(method)]
        return _done(answer) if non_block else answer

    def initialize_from_config(self, kv_cache_configs: Any) -> None:
        """There is no cache to set up; some versions also warm up here, and want to know how long that took."""

    def compile_or_warm_up_model(self) -> None:
        """There is nothing to warm up."""

    def check_health(self) -> None:
        """A fake is always well."""

    def shutdown(self) -> None:
        """There are no workers."""

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Take one step's time and make up its tokens."""
        self.step_times.append(time.perf_counter())
        time.sleep(self.step_seconds)
        output = fake_output(scheduler_output, self.requests)
        return _done(output) if non_block else output


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
