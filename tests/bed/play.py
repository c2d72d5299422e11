"""A workload played step by step from its seed, and what is seen at each step, as plain values.

Everything that a worker or a client would be told, and everything that the scheduler and its pool keep, is taken down,
so that two plays of the same workload can be compared.
"""

from __future__ import annotations

import queue
import random
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from tests.bed.fake_executor import BLOCK_SIZE
from tests.bed.scheduler import make_request
from tests.bed.workloads import Workload

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
from vllm.v1.engine import EngineCoreRequestType
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.request import Request, RequestStatus

from tests.bed.plain import plain

MAX_STEPS = 20_000
Step = dict[str, Any]


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


@contextmanager
def _until_empty() -> Generator[None, None, None]:
    try:
        yield
    except queue.Empty:
        return
