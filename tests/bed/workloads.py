"""Scheduling workloads for vLLM's real engine core, played step by step from a seed, and what is seen at each step.

Everything that a worker or a client would be told, and everything that the scheduler and its pool keep, is taken down
as plain values, so that two plays of the same workload can be compared. Only the model is made up.
"""

from __future__ import annotations

import dataclasses
import enum
import queue
import random
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal

from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import FIRST_PLAIN_TOKEN, VOCAB, make_config, make_request

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
import msgspec
import torch
from vllm.config import ParallelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.engine.utils import EngineZmqAddresses
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.serial_utils import UtilityResult

MAX_MODEL_LEN = 512
MAX_STEPS = 20_000
# Told by the clock, so that no two plays agree on them.
CLOCKED = frozenset({"timestamp", "arrival_time", "iteration_details"})
Step = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Workload:
    """What is asked of an engine, and of what kind the engine is.

    ``shows`` names what must have happened in a play, or it proves nothing. ``prompt`` and ``output`` are (least, most)
    tokens, of which the first ``shared`` are common to all; ``window`` is in tokens, ``drafts`` are speculated tokens
    per step at most. The ratios are chances per request.
    """

    name: str
    shows: frozenset[str]
    blocks: int = 400
    requests: int = 40
    prompt: tuple[int, int] = (20, 200)
    output: tuple[int, int] = (3, 40)
    shared: int = 0
    running: int = 16
    budget: int = 1024
    caching: bool = True
    windows: tuple[int | None, ...] = (None,)
    drafts: int = 0
    policy: Literal["fcfs", "priority"] = "fcfs"
    asynchronous: bool = False
    abort_ratio: float = 0.1
    reset_ratio: float = 0.0


TIGHT: dict[str, Any] = {"blocks": 48, "output": (20, 90)}
ABORTS = frozenset({"abort waiting", "abort running", "abort preempted", "abort in flight"})

WORKLOADS = (
    Workload("prefix sharing", frozenset({"hit", "shared block"}), shared=96, prompt=(100, 220)),
    Workload("preemption", frozenset({"preemption"}), **TIGHT),
    Workload("aborts at every stage", ABORTS, **TIGHT, requests=60, abort_ratio=0.6, shared=32, prompt=(40, 200)),
    Workload("chunked prefill", frozenset({"chunk", "hit"}), budget=64, shared=48, prompt=(60, 300)),
    Workload("caching off", frozenset({"preemption"}), **TIGHT, caching=False, shared=48, prompt=(60, 200)),
    Workload(
        "reset in the middle",
        frozenset({"reset", "reset refused", "reset of running"}),
        shared=64,
        prompt=(70, 150),
        reset_ratio=0.4,
    ),
    Workload("speculation", frozenset({"accepted", "rejected", "preemption"}), **TIGHT, drafts=4),
    Workload("sliding window", frozenset({"placeholder"}), windows=(64,), prompt=(100, 300), shared=96),
    Workload(
        "hybrid groups",
        frozenset({"placeholder", "hit", "preemption"}),
        blocks=90,
        windows=(None, 64),
        prompt=(100, 250),
        output=(20, 90),
        shared=96,
    ),
    Workload("priority", frozenset({"preemption", "overtaken"}), **TIGHT, policy="priority", running=8),
    Workload(
        "async scheduling",
        frozenset({"preemption", "in flight", "abort in flight", "hit"}),
        **TIGHT,
        asynchronous=True,
        shared=32,
        prompt=(40, 200),
        abort_ratio=0.4,
    ),
    Workload(
        "async speculation", frozenset({"accepted", "rejected", "in flight"}), **TIGHT, asynchronous=True, drafts=3
    ),
    Workload(
        "everything at once",
        frozenset({"preemption", "hit", "accepted", "placeholder", "reset of running", "chunk"}),
        blocks=90,
        windows=(None, 64),
        prompt=(60, 250),
        output=(20, 90),
        shared=48,
        budget=96,
        drafts=3,
        policy="priority",
        abort_ratio=0.3,
        reset_ratio=0.2,
    ),
)


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


class Play:
    """One play of a workload: ``steps`` has what was seen after each step, ``seen`` how often what happened.

    ``meddle`` is called before each step, and at the end when nothing runs any more.
    """

    def __init__(self, engine: EngineCore, workload: Workload, seed: int, meddle: Callable[[], None]) -> None:
        self.engine = engine
        self.scheduler: Any = engine.scheduler
        self.workload = workload
        self.steps: list[Step] = []
        self.seen: Counter[str] = engine.model_executor.seen
        self._draw = random.Random(seed)
        self._meddle = meddle
        self._process = isinstance(engine, EngineCoreProc)
        self._requests: dict[str, Request] = {}
        self._answers: list[Any] = []
        engine.model_executor.draw.seed(seed)
        self._run()

    def _run(self) -> None:
        chance = self._draw.random
        for number in range(self.workload.requests):
            self._add(number)
            for _ in range(self._draw.randrange(5)):
                self._step()
            if chance() < self.workload.abort_ratio:
                self._abort()
            if chance() < self.workload.reset_ratio:
                self._reset(running=chance() < 0.5)
        for _ in range(MAX_STEPS):
            if not self._has_work():
                break
            self._step()
        self._meddle()
        assert not self.scheduler.has_requests(), "the workload did not come to its end"

    def _has_work(self) -> bool:
        return self.scheduler.has_requests() or bool(self.engine.batch_queue) or self._queued()

    def _queued(self) -> bool:
        return self._process and not self.engine.input_queue.empty()

    def _add(self, number: int) -> None:
        workload, draw = self.workload, self._draw
        request = make_request(
            number,
            draw.randint(*workload.prompt),
            draw.randint(*workload.output),
            workload.shared,
            block_size=BLOCK_SIZE,
            hasher=self.engine.request_block_hasher,
        )
        request.arrival_time = float(number)
        if workload.policy == "priority":
            request.priority = draw.randrange(3)
            self.seen["overtaken"] += any(request < other for other in self.scheduler.waiting)
        self._requests[request.request_id] = request
        if self._process:
            self.engine.input_queue.put_nowait((EngineCoreRequestType.ADD, (request, 0)))
        else:
            self.engine.add_request(request)

    def _abort(self) -> None:
        """Abort a request: preferably at the stage that was met least, some in the middle of the next step."""
        stages: dict[str, list[str]] = {}
        for request in self.scheduler.requests.values():
            stages.setdefault(request.status.name.lower(), []).append(request.request_id)
        if not stages:
            return
        stage = min(sorted(stages), key=lambda name: self.seen[f"abort {name}"])
        victim = self._draw.choice(stages[stage])
        self.seen[f"abort {stage}"] += 1
        if self._draw.random() < 0.3:
            # What the input thread does besides: it is found while the model runs.
            self.engine.aborts_queue.put_nowait([victim])
            self.seen["abort in flight"] += 1
        if self._process:
            self.engine.input_queue.put_nowait((EngineCoreRequestType.ABORT, [victim]))
        else:
            self.engine.abort_requests([victim])

    def _reset(self, *, running: bool) -> None:
        self.seen["reset of running"] += running and bool(self.scheduler.running)
        if self._process:
            call = (0, len(self.steps), "reset_prefix_cache", (running,))
            self.engine.input_queue.put_nowait((EngineCoreRequestType.UTILITY, call))
        else:
            self._answers.append(self.engine.reset_prefix_cache(running))

    def _step(self) -> None:
        self._meddle()
        if not self._has_work():
            return
        if self._process:
            self.engine._process_input_queue()
            self.engine._process_engine_step()
        else:
            outputs, executed = self.engine.step_fn()
            self.engine.post_step(executed)
            self._answers.extend((outputs or {}).items())
        self._take_down()

    def _take_down(self) -> None:
        manager, told = self.scheduler.kv_cache_manager, self.engine.model_executor.told
        pool = manager.block_pool
        with _until_empty():
            while self._process:
                self._answers.append(self.engine.output_queue.get_nowait())
        tables = [
            {request: [block.block_id for block in blocks] for request, blocks in m.req_to_blocks.items()}
            for m in manager.coordinator.single_type_managers
        ]
        step: Step = {
            "scheduled": told[:],
            "outputs": plain(self._answers),
            "references": [block.ref_cnt for block in pool.blocks],
            "hashes": [block.block_hash for block in pool.blocks],
            "cached": len(pool.cached_block_hash_to_block),
            "free queue": [block.block_id for block in pool.free_block_queue.get_all_free_blocks()],
            "tables": tables,
            "running": [request.request_id for request in self.scheduler.running],
            "waiting": [request.request_id for request in self.scheduler.waiting],
            "deferred frees": [
                (fence, [block.block_id for block in blocks]) for fence, blocks in self.scheduler.deferred_frees
            ],
            "progress": {
                request.request_id: (request.status.name, request.num_computed_tokens, request.num_tokens)
                for request in self.scheduler.requests.values()
            },
        }
        self.steps.append(step)
        self._note(step, pool.null_block.block_id)
        told.clear()
        self._answers.clear()

    def _note(self, step: Step, null_block: int) -> None:
        seen = self.seen
        seen["in flight"] += len(self.engine.batch_queue or ()) > 0
        seen["preemption"] += any(name == RequestStatus.PREEMPTED.name for name, *_ in step["progress"].values())
        seen["shared block"] += any(n > 1 for i, n in enumerate(step["references"]) if i != null_block)
        seen["placeholder"] += any(null_block in ids for table in step["tables"] for ids in table.values())
        for scheduled in step["scheduled"]:
            seen["hit"] += sum(new["num_computed_tokens"] > 0 for new in scheduled["scheduled_new_reqs"])
        for answer in step["outputs"]:
            result = answer if isinstance(answer, bool) else (answer[1]["utility_output"] or {}).get("result")
            if result is not None:
                seen["reset" if result in (True, {"result": True}) else "reset refused"] += 1


def first_difference(one: list[Step], other: list[Step]) -> str | None:
    """Return where two plays differ first, in words, or None when they are the same."""
    for number, (before, after) in enumerate(zip(one, other, strict=False)):
        for what, value in before.items():
            if value != after[what]:
                return f"step {number}: {what}: {value!r} != {after[what]!r}"
    return None if len(one) == len(other) else f"{len(one)} steps != {len(other)} steps"


def plain(value: Any) -> Any:
    """Return ``value`` as plain values that can be compared; sets are sorted, what a clock told is left out.

    Raises ``TypeError`` for what it doesn't know: nothing is left out unseen.
    """
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int | float | str | bytes | None):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    elif isinstance(value, msgspec.Struct):
        names = list(value.__struct_fields__)
    elif isinstance(value, UtilityResult):
        names = ["result"]
    else:
        raise TypeError(f"no plain form of {type(value)}")
    return {name: plain(getattr(value, name)) for name in names if name not in CLOCKED}


@contextmanager
def _until_empty() -> Generator[None, None, None]:
    try:
        yield
    except queue.Empty:
        return


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future
