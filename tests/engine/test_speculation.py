"""The speculation section on real schedulers, synchronous and asynchronous, with drafts that are made up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from engine_hooks.core.drafting import STUCK_SECONDS
from engine_hooks.core.observers import UnsupportedError
from engine_hooks.core.speculation import SpeculationObserver
from tests.bed.scheduler import make_config, make_request, make_scheduler
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


# -- drafts ------------------------------------------------------------------------------------------------


def test_drafts_are_counted_as_vllm_counts_them() -> None:
    bed = Bed()
    bed.add((1, 40, 400), (2, 60, 400))
    bed.step()
    assert bed.counts() == [0, 0, 0]
    for _ in range(10):
        bed.step()  # two requests, four drafts each, two of them accepted
    assert bed.counts() == bed.vllm == [20, 80, 40]
    bed.step(lambda key, drafts: 0)
    bed.step(lambda key, drafts: drafts)
    assert bed.counts() == bed.vllm == [24, 96, 48]
    bed.add((3, 100, 400))
    bed.step(number=0)  # a prefill among them
    bed.step()  # no drafts at all
    assert bed.counts() == bed.vllm == [26, 104, 52]
    assert bed.interruptions() == (0, 0)


def test_accepted_drafts_behind_the_end_of_a_request_are_not_kept() -> None:
    bed = Bed()
    bed.add((1, 40, 3))
    bed.step()
    bed.step(lambda key, drafts: 4)
    assert not bed.scheduler.requests
    # One token was there, and two more were allowed: the first accepted draft and the next.
    assert bed.vllm == [1, 4, 4]
    assert bed.counts() == [1, 4, 1]
    assert bed.interruptions() == (0, 0)


def test_states_follow_the_drafts() -> None:
    bed = Bed()
    bed.add((1, 40, 400), (2, 40, 400))
    bed.step(number=0)
    assert states(bed) == {"drafting": 0, "committed": 0, "aborted": 0}
    bed.draft()
    assert states(bed) == {"drafting": 2, "committed": 0, "aborted": 0}
    bed.schedule()
    assert states(bed) == {"drafting": 2, "committed": 0, "aborted": 0}
    bed.update(lambda key, drafts: 1)
    assert states(bed) == {"drafting": 0, "committed": 2, "aborted": 0}
    bed.abort("r1")  # nothing is open: no interruption
    assert states(bed) == {"drafting": 0, "committed": 1, "aborted": 0}
    assert bed.interruptions() == (0, 0)


# -- interruptions -----------------------------------------------------------------------------------------


def test_an_abort_with_drafts_that_wait_is_an_interruption() -> None:
    bed = Bed()
    bed.add((1, 40, 400), (2, 40, 400))
    bed.step()
    bed.abort("r1")
    assert bed.interruptions() == (1, 0)
    assert states(bed) == {"drafting": 1, "committed": 0, "aborted": 0}


def test_an_abort_while_a_step_is_in_flight_is_an_interruption() -> None:
    bed = Bed()
    bed.add((1, 40, 400), (2, 40, 400))
    bed.step()
    bed.schedule()
    bed.abort("r1")
    bed.update(lambda key, drafts: 3)
    assert bed.interruptions() == (1, 0)
    assert bed.counts() == bed.vllm == [1, 4, 3]  # what was drafted for the aborted one counts nowhere


def test_an_abort_before_the_first_draft_is_none() -> None:
    bed = Bed()
    bed.add((1, 40, 400), (2, 40, 400))
    bed.abort("r2")  # never admitted
    bed.step(number=0)
    bed.abort("r1")
    assert bed.interruptions() == (0, 0)


def test_a_request_that_finishes_is_not_interrupted() -> None:
    bed = Bed()
    bed.add((1, 40, 30), (2, 64, 60))
    while bed.scheduler.requests:
        bed.step()
    assert bed.interruptions() == (0, 0)
    assert states(bed) == {"drafting": 0, "committed": 0, "aborted": 0}


def test_a_preemption_with_drafts_is_an_interruption_and_leaves_nothing() -> None:
    bed = Bed(blocks=12)
    first, second = bed.add((1, 80, 60), (2, 80, 60))
    while not second.num_preemptions:
        bed.step()
    assert not first.num_preemptions
    assert bed.interruptions() == (1, 0)
    while bed.scheduler.requests:
        bed.step()
    assert bed.interruptions() == (1, 0)
    assert bed.counts() == bed.vllm or bed.counts()[:2] == bed.vllm[:2]
    assert len(bed.observer._table) == 0


def test_a_preemption_without_drafts_is_none() -> None:
    bed = Bed(blocks=12)
    _, second = bed.add((1, 80, 60), (2, 80, 60))
    while not second.num_preemptions:
        bed.step(number=0)
    assert bed.interruptions() == (0, 0)


# -- residue -----------------------------------------------------------------------------------------------


def keep_back(bed: Bed, number: int) -> None:
    """Let the engine forget to give back the last blocks of the next requests."""
    manager = bed.scheduler.kv_cache_manager
    free = manager.free

    def forgetful(request: Request) -> None:
        table = manager.coordinator.single_type_managers[0].req_to_blocks[request.request_id]
        del table[len(table) - number :]
        free(request)

    manager.free = forgetful


def test_residue_of_an_aborted_request_is_exact() -> None:
    bed = Bed()
    bed.add((1, 100, 400), (2, 40, 400))
    bed.step()
    keep_back(bed, 3)
    bed.abort("r1")
    assert bed.interruptions() == (1, 3)
    bed.abort("r2")
    assert bed.interruptions() == (2, 6)
    assert states(bed) == {"drafting": 0, "committed": 0, "aborted": 0}


def test_residue_of_a_preempted_request_is_exact() -> None:
    bed = Bed(blocks=14)
    _, second = bed.add((1, 80, 60), (2, 80, 60))
    bed.step()
    keep_back(bed, 2)
    while not second.num_preemptions:
        bed.step()
    assert bed.interruptions() == (1, 2)


def test_a_leak_of_a_request_that_was_not_interrupted_is_no_residue() -> None:
    bed = Bed()
    bed.add((1, 40, 2))
    keep_back(bed, 1)
    while bed.scheduler.requests:
        bed.step(number=0)
    assert bed.interruptions() == (0, 0)


def test_a_block_that_others_share_is_given_back_too() -> None:
    bed = Bed()
    for i in (1, 2):
        bed.scheduler.add_request(make_request(i, 100, 400, 64))  # four blocks in common
        bed.step()
    bed.abort("r1")
    assert bed.interruptions() == (1, 0)
    assert len(bed.scheduler.running) == 1


# -- stuck -------------------------------------------------------------------------------------------------


def test_drafts_that_nobody_verifies_are_stuck() -> None:
    bed = Bed()
    bed.add((1, 40, 400), (2, 40, 400))
    bed.step()
    assert bed.look().stuck == 0
    bed.now = STUCK_SECONDS + 1.0
    assert bed.look().stuck == 2
    bed.step()
    assert bed.look().stuck == 0


def test_drafting_for_long_with_progress_is_not_stuck() -> None:
    bed = Bed()
    bed.add((1, 40, 400))
    for _ in range(30):
        bed.step()
        bed.now += 1.0
        row = bed.look()
        assert (row.stuck, row.states["drafting"]) == (0, 1)


def test_a_request_without_drafts_for_long_is_not_stuck() -> None:
    bed = Bed()
    bed.add((1, 40, 400))
    bed.step()
    bed.step(number=0)
    bed.look()
    bed.now = 100.0
    assert bed.look().stuck == 0


def test_an_aborted_request_that_is_not_cleaned_up_is_stuck_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    bed.add((1, 40, 400))
    bed.step()
    # As a connector does that still sends the request's blocks.
    monkeypatch.setattr(bed.scheduler, "_connector_finished", lambda request: (True, None))
    bed.abort("r1")
    assert states(bed) == {"drafting": 0, "committed": 0, "aborted": 1}
    bed.now = STUCK_SECONDS - 1.0
    assert bed.look().stuck == 0
    bed.now = STUCK_SECONDS + 1.0
    assert bed.look().stuck == 1
    bed.scheduler._free_blocks(bed.scheduler.requests["r1"])
    row = bed.look()
    assert (row.stuck, row.states["aborted"], row.interruptions_total, row.residue_blocks_total) == (0, 0, 1, 0)


def test_a_deferred_free_is_cleaned_up_when_its_step_is_back() -> None:
    bed = Bed()
    bed.scheduler.defer_block_free = True  # as with an asynchronous KV connector
    bed.add((1, 40, 400), (2, 40, 400))
    bed.step()
    bed.schedule()
    bed.abort("r1")
    assert bed.scheduler.deferred_frees
    assert states(bed)["aborted"] == 1
    bed.update(lambda key, drafts: 0)
    assert not bed.scheduler.deferred_frees
    row = bed.look()
    assert (row.states["aborted"], row.interruptions_total, row.residue_blocks_total) == (0, 1, 0)


# -- asynchronous scheduling -------------------------------------------------------------------------------


def test_placeholders_of_asynchronous_scheduling_count_as_drafts() -> None:
    bed = Bed(asynchronous=True)
    bed.add((1, 40, 400), (2, 60, 400))
    bed.schedule()
    for _ in range(6):
        bed.schedule()
        bed.update(lambda key, drafts: drafts // 2)
    assert bed.counts() == bed.vllm
    assert bed.counts()[1] == 4 * bed.counts()[0] > 0
    assert states(bed) == {"drafting": 2, "committed": 0, "aborted": 0}
    bed.abort("r1")
    assert bed.interruptions() == (1, 0)
    while bed.flying:
        bed.update(lambda key, drafts: drafts // 2)
    assert bed.counts() == bed.vllm


def test_asynchronous_requests_that_finish_are_not_interrupted() -> None:
    bed = Bed(asynchronous=True)
    bed.add((1, 40, 30), (2, 60, 40))
    bed.schedule()
    while bed.scheduler.requests:
        bed.schedule()
        bed.update(lambda key, drafts: drafts // 2)
    assert bed.interruptions() == (0, 0)
    assert bed.counts()[:2] == bed.vllm[:2]


def test_an_asynchronous_preemption_is_an_interruption() -> None:
    bed = Bed(blocks=14, asynchronous=True)
    _, second = bed.add((1, 80, 60), (2, 80, 60))
    bed.schedule()
    while not second.num_preemptions:
        bed.schedule()
        bed.update(lambda key, drafts: drafts // 2)
    assert bed.interruptions() == (1, 0)
    keep_back(bed, 1)
    bed.abort("r1")
    assert bed.interruptions() == (2, 1)


# -- unsupported -------------------------------------------------------------------------------------------


def test_an_engine_that_does_not_speculate_says_so() -> None:
    with pytest.raises(UnsupportedError, match="does not speculate"):
        Watched(make_scheduler(20), SpeculationObserver)
