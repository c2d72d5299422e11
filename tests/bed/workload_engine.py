"""vLLM's real engine core for a workload: its configuration, and a worker that makes up tokens and drafts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import FIRST_PLAIN_TOKEN, VOCAB, make_config
from tests.bed.workloads import MAX_MODEL_LEN, Workload

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
import torch
from vllm.config import ParallelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.engine.utils import EngineZmqAddresses
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request

from tests.bed.plain import plain


class WorkloadExecutor(FakeExecutor):
    """Takes down what workers are told, and makes up tokens and drafts from ``draw``, some of them rejected."""

    workload: Workload
    supports_pp = True

    def _init_executor(self) -> None:
        super()._init_executor()
        self.draw = random.Random()
        self.told: list[Any] = []
        self.seen: Counter[str] = Counter()
        self._output = ModelRunnerOutput(req_ids=[], req_id_to_index={})

    def collective_rpc(
        self, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None, non_block: bool = False
    ) -> Any:
        """Answer as one worker whose layers have the workload's kinds of attention."""
        if method != "get_kv_cache_spec":
            return super().collective_rpc(method, timeout, args, kwargs, non_block)
        shape: dict[str, Any] = {
            "block_size": BLOCK_SIZE,
            "num_kv_heads": 1,
            "head_size": 32,
            "dtype": torch.float32,
        }
        return [
            {
                f"layers.{i}": FullAttentionSpec(**shape) if w is None else SlidingWindowSpec(**shape, sliding_window=w)
                for i, w in enumerate(self.workload.windows)
            }
        ]

    def execute_model(self, scheduler_output: SchedulerOutput, non_block: bool = False) -> Any:
        """Take down what was scheduled; its tokens are fetched by ``sample_tokens``, as from a real worker."""
        self.told.append(plain(scheduler_output))
        ids = list(scheduler_output.num_scheduled_tokens)
        self._output = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[
                self._sample(self.requests[i], scheduler_output.scheduled_spec_decode_tokens.get(i, [])) for i in ids
            ],
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        result = None if ids else self._output
        return _done(result) if non_block else result

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """Return the tokens of the step that was told last."""
        return _done(self._output) if non_block else self._output

    def take_draft_token_ids(self) -> DraftTokenIds:
        """Draft up to the workload's number of tokens for each request that has got one."""
        output = self._output
        ids = [i for i, tokens in zip(output.req_ids, output.sampled_token_ids, strict=True) if tokens]
        drafts = [[self._token() for _ in range(self.draw.randint(0, self.workload.drafts))] for _ in ids]
        return DraftTokenIds(ids, drafts)

    def _sample(self, request: Request, drafts: list[int]) -> list[int]:
        # Looked at right after it was scheduled: later steps may be scheduled before this one's output is used.
        if request.is_prefill_chunk:
            self.seen["chunk"] += 1
            return []
        accepted = self.draw.randint(0, len(drafts))
        self.seen["accepted"] += accepted
        self.seen["rejected"] += len(drafts) - accepted
        # With async scheduling only the workers know the drafts: the scheduler has placeholders below zero.
        return [token if token >= 0 else self._token() for token in drafts[:accepted]] + [self._token()]

    def _token(self) -> int:
        return self.draw.randrange(FIRST_PLAIN_TOKEN, VOCAB)


class QuietCore(EngineCoreProc):
    """The real engine process's core on our own thread: no sockets, and whoever plays it runs its loop."""

    @contextmanager
    def _perform_handshakes(self, *_: Any) -> Generator[EngineZmqAddresses, None, None]:
        yield EngineZmqAddresses(inputs=[], outputs=[])

    def process_input_sockets(self, inputs: Any, coordinator: Any, identity: Any, ready_event: Any) -> None:
        """Report ready; requests are put into the queue by ``play``."""
        ready_event.set()

    def process_output_sockets(self, outputs: Any, coordinator: Any, engine_index: int) -> None:
        """Leave the outputs in their queue, for ``play``."""


def make_engine(workload: Workload, *, process: bool) -> EngineCore:
    """Return an engine for this workload: the core of an engine process, or one for its caller's own process."""
    config = make_workload_config(workload)
    executor = type("Executor", (WorkloadExecutor,), {"workload": workload})
    core = QuietCore(config, True, "", executor, log_stats=True) if process else EngineCore(config, executor, True)
    core.model_executor.requests = core.scheduler.requests
    return core


def make_workload_config(workload: Workload) -> VllmConfig:
    """Return vLLM's configuration for this workload."""
    base = make_config(block_size=BLOCK_SIZE, caching=workload.caching, max_model_len=MAX_MODEL_LEN)
    base.cache_config.num_gpu_blocks_override = workload.blocks
    speculation = None
    if workload.drafts:
        speculation = SpeculativeConfig(
            method="ngram_gpu" if workload.asynchronous else "ngram",
            num_speculative_tokens=workload.drafts,
            prompt_lookup_max=3,
            target_model_config=base.model_config,
            target_parallel_config=ParallelConfig(),
        )
    config = VllmConfig(
        model_config=base.model_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=workload.running,
            max_num_batched_tokens=workload.budget,
            max_model_len=MAX_MODEL_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=workload.asynchronous,
            policy=workload.policy,
            disable_hybrid_kv_cache_manager=False,
        ),
        cache_config=base.cache_config,
        device_config=base.device_config,
        speculative_config=speculation,
    )
    # vLLM turns it off where the platform is a CPU; scheduler and engine core are the same everywhere.
    config.scheduler_config.async_scheduling = workload.asynchronous
    return config


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
