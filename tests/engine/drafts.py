"""A watched scheduler that speculates, with drafts that are made up and accepted as a test says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from engine_hooks.core.speculation import SpeculationObserver
from tests.bed.scheduler import make_config, make_request
from tests.engine.observing import Watched

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.
import torch
from vllm.config import ParallelConfig, SpeculativeConfig, VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

BLOCK = 16
DRAFTS = 4
TOKEN = 7
Accept = Callable[[str, int], int]


class Bed(Watched[SpeculationObserver]):
    """A watched scheduler that speculates. Steps in flight wait in ``flying``; their drafts are accepted as told."""

    def __init__(self, blocks: int = 200, *, asynchronous: bool = False, **config: Any) -> None:
        base = make_config(block_size=BLOCK, max_num_seqs=32, **config)
        base.cache_config.num_gpu_blocks = blocks + 1
        speculation = SpeculativeConfig(
            method="ngram_gpu" if asynchronous else "ngram",
            num_speculative_tokens=DRAFTS,
            prompt_lookup_max=3,
            target_model_config=base.model_config,
            target_parallel_config=ParallelConfig(),
        )
        vllm_config = VllmConfig(
            model_config=base.model_config,
            scheduler_config=base.scheduler_config,
            cache_config=base.cache_config,
            device_config=base.device_config,
            speculative_config=speculation,
        )
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
        scheduler = (AsyncScheduler if asynchronous else Scheduler)(
            vllm_config=vllm_config,
            kv_cache_config=KVCacheConfig(
                num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["full"], spec)]
            ),
            block_size=BLOCK,
            log_stats=True,
            structured_output_manager=StructuredOutputManager(vllm_config),
        )
        super().__init__(scheduler, SpeculationObserver)
        self.asynchronous = asynchronous
        self.flying: deque[SchedulerOutput] = deque()
        # What vLLM itself counted: drafts of one request and step, draft tokens, accepted ones.
        self.vllm = [0, 0, 0]

    def schedule(self) -> SchedulerOutput:
        """Send a step on its way."""
        output = self.scheduler.schedule()
        self.flying.append(output)
        return output

    def update(self, accept: Accept) -> None:
        """Let the oldest step in flight come back; ``accept`` says how many of a request's drafts it takes."""
        output = self.flying.popleft()
        ids = list(output.num_scheduled_tokens)
        sampled = []
        for key in ids:
            request = self.scheduler.requests.get(key)
            drafts = output.scheduled_spec_decode_tokens.get(key, ())
            done = request is None or request.num_computed_tokens >= request.num_tokens
            sampled.append([TOKEN] * (accept(key, len(drafts)) + 1 if done else 0))
        result = self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={key: index for index, key in enumerate(ids)},
                sampled_token_ids=sampled,
                logprobs=None,
                prompt_logprobs_dict={},
                pooler_output=[],
            ),
        )
        for outputs in result.values():
            stats = outputs.scheduler_stats.spec_decoding_stats if outputs.scheduler_stats else None
            if stats is not None:
                self.vllm[0] += stats.num_drafts
                self.vllm[1] += stats.num_draft_tokens
                self.vllm[2] += stats.num_accepted_tokens

    def draft(self, number: int = DRAFTS) -> None:
        """Propose drafts for all that run, as the engine does after a step."""
        if not self.asynchronous:
            ids = [request.request_id for request in self.scheduler.running]
            self.scheduler.update_draft_token_ids(DraftTokenIds(ids, [[TOKEN] * number for _ in ids]))

    def step(self, accept: Accept = lambda key, drafts: drafts // 2, number: int = DRAFTS) -> None:
        self.schedule()
        self.update(accept)
        self.draft(number)

    def add(self, *requests: tuple[int, int, int]) -> list[Request]:
        made = [make_request(*request) for request in requests]
        for request in made:
            self.scheduler.add_request(request)
        return made

    def abort(self, *keys: str) -> None:
        self.scheduler.finish_requests(keys, RequestStatus.FINISHED_ABORTED)

    def counts(self) -> list[int]:
        row = self.look()
        return [row.rounds_total, row.drafted_tokens_total, row.accepted_tokens_total]

    def interruptions(self) -> tuple[int, int]:
        row = self.look()
        return row.interruptions_total, row.residue_blocks_total


def states(bed: Bed) -> dict[str, int]:
    states: dict[str, int] = bed.look().states
    return states


def keep_back(bed: Bed, number: int) -> None:
    """Let the engine forget to give back the last blocks of the next requests."""
    manager = bed.scheduler.kv_cache_manager
    free = manager.free

    def forgetful(request: Request) -> None:
        table = manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
        del table[len(table) - number :]
        free(request)

    manager.free = forgetful
