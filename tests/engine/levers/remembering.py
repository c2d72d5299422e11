"""A worker without a model whose outputs depend on what its KV cache holds, and engines and schedulers over it.

It does what vLLM's runner does with a step's orders: keeps each request's tokens and block table, writes the scheduled
tokens into their blocks, and makes the next token of all that it then reads back through the table. Whatever overwrites
a block that is in use, or has a request computed with a wrong table or wrong tokens, changes its output.
"""

from __future__ import annotations

import dataclasses
import zlib
from concurrent.futures import Future
from typing import Any

from tests.bed.fake_executor import BLOCK_SIZE, FakeExecutor
from tests.bed.scheduler import FIRST_PLAIN_TOKEN, VOCAB, make_config, make_request

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import ModelRunnerOutput

from engine_hooks.core import hook
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.registry import LEVERS
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.settings import Settings

ALL = ",".join(lever.NAME for lever in LEVERS)
MAX_STEPS = 20_000


def next_token(context: list[int]) -> int:
    """The token after ``context``."""
    return FIRST_PLAIN_TOKEN + zlib.crc32(repr(context).encode()) % (VOCAB - FIRST_PLAIN_TOKEN)


def outputs_of(prompt: list[int], count: int) -> list[int]:
    """What any correct engine puts out for ``prompt``."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


@dataclasses.dataclass(slots=True)
class _State:
    tokens: list[int]
    blocks: list[int]


class RememberingWorker:
    """One worker over ``memory``: block id and offset -> the token that was written there last."""

    def __init__(self) -> None:
        self.memory: dict[tuple[int, int], int] = {}
        self._states: dict[str, _State] = {}
        self._batch: set[str] = set()

    def run(self, scheduled: Any) -> ModelRunnerOutput:
        """Do one step."""
        self._take_in(scheduled)
        ids = list(scheduled.num_scheduled_tokens)
        computed = {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
        cached = scheduled.scheduled_cached_reqs
        computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        # The device computes the whole batch at once: all is written before anything is read.
        for request in ids:
            self._write(request, computed[request], scheduled.num_scheduled_tokens[request])
        tokens = [self._sample(request, computed[request] + scheduled.num_scheduled_tokens[request]) for request in ids]
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request: index for index, request in enumerate(ids)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def _take_in(self, scheduled: Any) -> None:
        for request in scheduled.finished_req_ids:
            self._states.pop(request, None)
        for new in scheduled.scheduled_new_reqs:
            self._states[new.req_id] = _State(list(new.prompt_token_ids), list(new.block_ids[0]))
        cached = scheduled.scheduled_cached_reqs
        batch = self._batch - set(cached.resumed_req_ids)
        for request, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            state = self._states[request]
            if request in cached.resumed_req_ids:
                state.blocks = list(blocks[0])
            elif blocks is not None:
                state.blocks += blocks[0]
            if request not in batch:  # it was not in the last step: what it knows of the tokens may be old
                state.tokens = list(cached.all_token_ids[request])
        self._batch = set(scheduled.num_scheduled_tokens)

    def _write(self, request: str, start: int, count: int) -> None:
        state = self._states[request]
        for at in range(start, start + count):
            self.memory[state.blocks[at // BLOCK_SIZE], at % BLOCK_SIZE] = state.tokens[at]

    def _sample(self, request: str, end: int) -> list[int]:
        state = self._states[request]
        if end < len(state.tokens):
            return []  # a part of the prompt
        read = [self.memory.get((state.blocks[at // BLOCK_SIZE], at % BLOCK_SIZE), -1) for at in range(end)]
        token = next_token(read)
        state.tokens.append(token)
        return [token]


class RememberingExecutor(FakeExecutor):
    """Runs one :class:`RememberingWorker`; the result of a step comes with ``sample_tokens``, as from a real one."""

    def _init_executor(self) -> None:
        super()._init_executor()
        self.worker = RememberingWorker()
        self._result: Any = None

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Compute; tell at once only where there is nothing to sample."""
        result = self.worker.run(scheduler_output)
        self._result, answer = (result, None) if scheduler_output.total_num_scheduled_tokens else (None, result)
        return _done(answer) if non_block else answer

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """Return the last step's tokens."""
        return _done(self._result) if non_block else self._result


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Play:
    """A real EngineCore over such a worker, watched by our hooks, with its desk; ``out``: tokens by request so far.

    ``in_flight``: asynchronous scheduling with vLLM's batch queue: two steps are under way at any time. ``sleepy``: as
    if started with --enable-sleep-mode.
    """

    def __init__(
        self,
        blocks: int = 120,
        *,
        in_flight: bool = False,
        allowed: str = ALL,
        requests: int = 16,
        tokens: int = 8192,
        executor: type[RememberingExecutor] = RememberingExecutor,
        sleepy: bool = False,
    ) -> None:
        config = make_config(block_size=BLOCK_SIZE, max_num_seqs=requests, max_model_len=1024, tokens=tokens)
        config.cache_config.num_gpu_blocks_override = blocks
        config.scheduler_config.async_scheduling = in_flight  # the CPU platform turns it off
        config.model_config.enable_sleep_mode = sleepy  # the CPU platform refuses it at the start
        self.engine = EngineCore(config, executor, log_stats=True)
        assert (self.engine.batch_queue is not None) == in_flight
        env = {"KVTIDE_SOCKET": "/proc/none/agent.sock", "KVTIDE_LEVERS": allowed}
        self.reporter: EngineReporter = hook.attach(self.engine, Settings.from_environment(env))
        self.desk = self.reporter._desk
        self.scheduler: Any = self.engine.scheduler
        self.pool: Any = self.scheduler.kv_cache_manager.block_pool
        self.accounts = self.reporter._accounts
        self.expected: dict[str, list[int]] = {}
        self.out: dict[str, list[int]] = {}
        self._actions = self._requests = 0

    @property
    def context(self) -> LeverContext:
        """What the levers of this engine work with."""
        lever: Any = self.desk._levers["hold_hot"]
        context: LeverContext = lever._context
        return context

    @property
    def memory(self) -> dict[tuple[int, int], int]:
        executor: Any = self.engine.model_executor
        memory: dict[tuple[int, int], int] = executor.worker.memory
        return memory

    def add(self, prompt: int, tokens: int, shared: int = 0, **marks: str) -> Any:
        """Send a request; ``marks``: tenant and session, as our front end sets them."""
        self._requests += 1
        hasher = self.engine.request_block_hasher
        request = make_request(self._requests, prompt, tokens, shared, block_size=BLOCK_SIZE, hasher=hasher)
        if marks:
            request.sampling_params.extra_args = {"kvtide": {"tenant": "", "session": "", **marks}}
        return self.send(request)

    def send(self, request: Any) -> Any:
        """Send a request that was made elsewhere."""
        self.expected[request.request_id] = outputs_of(list(request.prompt_token_ids), request.max_tokens)
        self.out[request.request_id] = []
        self.engine.add_request(request)
        return request

    def step(self, steps: int = 1) -> None:
        """Run steps, and take in their outputs."""
        for _ in range(steps):
            outputs, _ = self.engine.step_fn()
            for one in (outputs or {}).values():
                for output in one.outputs:
                    self.out[output.request_id] += output.new_token_ids

    def finish(self) -> None:
        """Run until nothing is left."""
        for _ in range(MAX_STEPS):
            if not self.scheduler.has_requests() and not self.engine.batch_queue:
                return
            self.step()
        raise AssertionError("the load did not come to its end")

    def order(self, lever: str, op: Any = "apply", action: str | None = None, **arguments: Any) -> ActionResult:
        """Have the desk obey an order."""
        self._actions += 1
        order = ActionOrder(
            action=action or f"a{self._actions}",
            lever=lever,
            op=op,
            instance=self.desk._instance,
            lease_seconds=30.0,
            arguments=arguments,
        )
        return self.desk.execute(order, 0.0)

    def check(self) -> None:
        """The law: references are what is explained, and the free queue holds each free block once."""
        assert self.reporter._guard.errors == {}
        ledger = self.accounts.ledger
        assert ledger is not None
        assert ledger.references == ledger.recount()
        assert ledger.net() == 0
        check_queue(self.pool)

    def check_outputs(self) -> None:
        """Every request has put out what it must, no token lost, none twice."""
        assert self.out == self.expected

    def audit(self) -> dict[int, int]:
        """What an audit of this moment names."""
        audit = self.accounts.audit
        assert audit is not None
        return dict(audit.complete().excess)

    def close(self) -> None:
        self.reporter.close()


def queue_of(pool: Any) -> list[int]:
    """The ids of the free blocks, the next to be reused first."""
    return [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]


def check_queue(pool: Any) -> None:
    """The free queue is sound in both directions, and has just the blocks without a reference."""
    queue = pool.free_block_queue
    forth = queue_of(pool)
    back, block = [], queue.fake_free_list_tail.prev_free_block
    while block is not queue.fake_free_list_head:
        back.append(block.block_id)
        block = block.prev_free_block
    assert back == forth[::-1]
    assert queue.num_free_blocks == len(forth) == len(set(forth))
    assert sorted(forth) == [b.block_id for b in pool.blocks if b.ref_cnt == 0 and not b.is_null]


def picture(play: Play) -> dict[str, Any]:
    """All that a lever might change."""
    scheduler, pool = play.scheduler, play.pool
    return {
        "queue": queue_of(pool),
        "references": [block.ref_cnt for block in pool.blocks],
        "hashes": [block.block_hash for block in pool.blocks],
        "running": [r.request_id for r in scheduler.running],
        "waiting": [r.request_id for r in scheduler.waiting],
        "requests": {r.request_id: (r.status.name, r.num_computed_tokens) for r in scheduler.requests.values()},
        "limits": (
            scheduler.max_num_active_reqs,
            scheduler.max_num_scheduled_tokens,
            scheduler.max_num_running_reqs,
            scheduler.kv_cache_manager.watermark_blocks,
            scheduler.pause_state,
        ),
        "methods": {
            name: vars(owner).get(name)
            for owner, name in (
                (scheduler, "schedule"), (scheduler, "set_pause_state"), (pool, "touch"),
                (scheduler, "_update_from_kv_xfer_finished"), (scheduler.kv_cache_manager, "free"),
            )
        },
        "references counted": play.accounts.ledger.references if play.accounts.ledger else None,
    }  # fmt: skip
