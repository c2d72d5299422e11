"""Why requests wait and what a stall is due to, on vLLM's real scheduler."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.core import waiting
from engine_hooks.core.waiting import WaitingObserver
from engine_hooks.detail import WaitingRow
from tests.bed.connectors import deliver, make_connector_scheduler, make_remote_request
from tests.bed.connectors import step as connector_step
from tests.bed.images import IMAGE, give_encoder, with_images
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.observing import Watched

# isort: split
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import PriorityRequestQueue
from vllm.v1.request import Request, RequestStatus


class Waiting(Watched[WaitingObserver]):
    """A scheduler and its waiting observer."""

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler, WaitingObserver)

    def add(self, *requests: Request) -> None:
        """Let requests come."""
        for request in requests:
            self.scheduler.add_request(request)

    def steps(self, number: int = 1, seconds: float = 0.01) -> None:
        """Run steps."""
        for _ in range(number):
            self.now += seconds
            (connector_step if self.scheduler.connector else step)(self.scheduler)

    def look(self, seconds: float = 1.0) -> WaitingRow:
        """The section after ``seconds`` without a step."""
        self.now += seconds
        row: WaitingRow = super().look()
        return row


def reasons(row: WaitingRow) -> dict[str, int]:
    """The row's reasons, which must be all that wait."""
    return dict(row.reasons)


# -- reasons, each with a twin that has another or none ---------------------------------------------------


def test_memory_is_why_the_refused_head_and_all_behind_it_wait() -> None:
    watched = Waiting(make_scheduler(21))
    watched.add(make_request(0, 200), make_request(1, 200), make_request(2, 16), make_request(3, 16))
    watched.steps()
    assert reasons(watched.look()) == {"memory": 3}
    watched.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    watched.steps()
    assert reasons(watched.look()) == {}


def test_slots_are_why_requests_wait_when_as_many_run_as_may() -> None:
    watched = Waiting(make_scheduler(200, max_num_seqs=2))
    watched.add(*(make_request(i, 16) for i in range(5)))
    watched.steps()
    row = watched.look()
    assert (reasons(row), row.stalled_seconds, row.idle_steps) == ({"slots": 3}, None, 0)


def test_the_token_budget_is_why_requests_wait_behind_a_long_prompt() -> None:
    watched = Waiting(make_scheduler(200, max_num_seqs=8, tokens=64))
    watched.add(make_request(0, 400), make_request(1, 16))
    watched.steps()
    assert reasons(watched.look()) == {"token_budget": 1}


def test_a_request_that_nobody_has_looked_at_is_only_queued() -> None:
    watched = Waiting(make_scheduler())
    watched.add(make_request(0, 16))
    row = watched.look(0.1)
    assert reasons(row) == {"queued": 1}
    watched.steps()
    assert reasons(watched.look()) == {}


def test_a_preempted_request_waits_as_one() -> None:
    watched = Waiting(make_scheduler(9))
    watched.add(make_request(0, 60, 200), make_request(1, 60, 200))
    while not any(request.status == RequestStatus.PREEMPTED for request in watched.scheduler.waiting):
        watched.steps()
    row = watched.look()
    assert (reasons(row), row.stalled_seconds) == ({"preempted": 1}, None)


def test_a_load_from_elsewhere_is_remote_kv_until_it_has_come() -> None:
    watched = Waiting(make_connector_scheduler("RemoteConnector"))
    watched.add(make_remote_request(0, 64, prefill="peer"))
    watched.steps(3)
    row = watched.look()
    assert (reasons(row), row.stalled_by) == ({"remote_kv": 1}, "remote_kv")
    connector_step(watched.scheduler, received=["r0"])
    watched.steps()
    row = watched.look()
    assert (reasons(row), row.stalled_by, row.stalled_seconds) == ({}, "", None)


def test_a_grammar_that_compiles_is_why_its_request_waits() -> None:
    watched = Waiting(make_scheduler())
    request = Request(
        request_id="r0",
        prompt_token_ids=list(range(3, 35)),
        sampling_params=SamplingParams(max_tokens=4, structured_outputs=StructuredOutputsParams(json_object=True)),
        pooling_params=None,
    )
    watched.add(request, make_request(1, 16))
    watched.steps()
    row = watched.look()
    assert reasons(row) == {"grammar": 1}
    assert row.stalled_seconds is None, "the other request runs"
    watched.scheduler.finish_requests("r1", RequestStatus.FINISHED_ABORTED)
    watched.look()
    watched.steps(3)
    row = watched.look()
    assert (row.stalled_by, row.idle_steps) == ("grammar", 3)


def test_a_session_that_waits_for_its_input_is_no_stall() -> None:
    watched = Waiting(make_scheduler())
    request = make_request(0, 16, max_tokens=2)
    request.resumable = True
    watched.add(request)
    watched.steps(4)
    assert request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    watched.look()
    row = watched.look(100.0)
    assert (reasons(row), row.stalled_seconds, row.idle_steps) == ({"streaming_input": 1}, None, 0)


def test_sessions_that_hold_all_slots_stall_who_comes_next() -> None:
    watched = Waiting(make_scheduler(max_num_seqs=1))
    session = make_request(0, 16, max_tokens=2)
    session.resumable = True
    watched.add(session)
    watched.steps(4)
    watched.look()
    watched.add(make_request(1, 16))
    watched.steps()
    row = watched.look(30.0)
    assert (reasons(row), row.stalled_by) == ({"streaming_input": 1, "slots": 1}, "slots")


def test_adapters_in_full_use_are_why_another_ones_request_waits() -> None:
    scheduler = make_scheduler()
    scheduler.lora_config = SimpleNamespace(max_loras=1)
    watched = Waiting(scheduler)
    requests = [make_request(i, 16) for i in range(3)]
    for request, adapter in zip(requests, (1, 2, 1), strict=True):
        request.lora_request = LoRARequest(f"adapter {adapter}", adapter, "/nowhere")
    watched.add(*requests)
    watched.steps()
    assert [request.request_id for request in scheduler.running] == ["r0", "r2"]
    assert reasons(watched.look()) == {"lora": 1}


@pytest.mark.parametrize(("lead", "running"), [(0, 0), (8, 1)])
def test_an_encoder_cache_held_for_nobody_is_why_images_find_no_room(lead: int, running: int) -> None:
    """vLLM's 31857, seen from the queue. With text before its image a request gets to run, and no further."""
    scheduler = make_scheduler(max_num_seqs=8, tokens=512)
    give_encoder(scheduler, IMAGE)
    watched = Waiting(scheduler)
    gone = with_images(0, "cat", max_tokens=4)
    scheduler.encoder_cache_manager.allocate(gone, 0)
    watched.add(with_images(1, "dog", max_tokens=4, lead=lead))
    watched.steps(2)
    watched.look()
    watched.steps(3)
    row = watched.look(20.0)
    assert len(scheduler.running) == running
    assert (row.stalled_by, sum(row.reasons.values())) == ("encoder_budget", 1 - running)
    scheduler.encoder_cache_manager.free(gone)
    watched.steps()
    row = watched.look()
    assert (row.stalled_seconds, reasons(row)) == (None, {})


def test_a_request_that_a_connector_passes_over_was_skipped() -> None:
    watched = Waiting(make_connector_scheduler("RemoteConnector"))
    watched.scheduler.connector.get_num_new_matched_tokens = lambda request, computed: (None, False)
    watched.add(make_remote_request(0, 64))
    watched.steps(2)
    row = watched.look()
    assert (reasons(row), row.stalled_by) == ({"skipped": 1}, "skipped")


def test_only_so_many_requests_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "MAX_LOOKED_AT", 3)
    watched = Waiting(make_scheduler(max_num_seqs=1))
    watched.add(*(make_request(i, 16) for i in range(8)))
    watched.steps()
    row = watched.look()
    assert (reasons(row), row.unseen) == ({"slots": 3}, 4)


def test_a_priority_queue_is_read_without_sorting_it() -> None:
    scheduler = make_scheduler(max_num_seqs=1)
    scheduler.waiting = PriorityRequestQueue()
    watched = Waiting(scheduler)
    watched.add(*(make_request(i, 16) for i in range(4)))
    watched.steps()
    assert reasons(watched.look()) == {"slots": 3}


# -- stalls -----------------------------------------------------------------------------------------------


def make_deferring() -> tuple[Waiting, Any]:
    """A scheduler of 12 blocks whose step is in flight while the request in it is aborted; its blocks are deferred."""
    watched = Waiting(make_connector_scheduler("RemoteConnector", "kv_consumer", num_blocks=13, asynchronous=True))
    watched.add(make_request(0, 160))
    in_flight = watched.scheduler.schedule()
    watched.scheduler.finish_requests("r0", RequestStatus.FINISHED_ABORTED)
    watched.add(make_request(1, 150))
    assert watched.scheduler.deferred_frees
    watched.look()
    return watched, in_flight


def test_deferred_frees_that_do_not_drain_are_what_stalls() -> None:
    """vllm-ascend's 16315: the victims' blocks sit in deferred frees and nobody can be scheduled."""
    watched, _ = make_deferring()
    watched.steps(5)
    row = watched.look(30.0)
    assert (row.stalled_by, row.idle_steps, reasons(row)) == ("deferred_frees", 5, {"memory": 1})
    assert row.stalled_seconds is not None
    assert row.stalled_seconds > 30.0


def test_deferred_frees_that_drain_stall_nothing() -> None:
    watched, in_flight = make_deferring()
    deliver(watched.scheduler, in_flight)
    watched.steps()
    row = watched.look(0.1)
    assert (row.stalled_by, row.stalled_seconds, row.idle_steps, reasons(row)) == ("", None, 0, {})


def test_memory_that_nobody_gives_back_is_what_stalls() -> None:
    watched = Waiting(make_scheduler(20))
    lost = watched.scheduler.kv_cache_manager.block_pool.get_new_blocks(15)
    watched.add(make_request(0, 100))
    watched.steps(4)
    row = watched.look(9.96)
    assert (row.stalled_by, row.idle_steps, reasons(row)) == ("memory", 4, {"memory": 1})
    assert row.stalled_seconds == pytest.approx(10.0)
    watched.scheduler.kv_cache_manager.block_pool.free_blocks(lost)
    watched.steps()
    assert watched.look().stalled_seconds is None


def test_delayed_frees_are_what_stalls_until_the_peer_has_its_kv() -> None:
    watched = Waiting(make_connector_scheduler("RemoteConnector", num_blocks=13))
    watched.add(make_remote_request(0, 150, max_tokens=1, decode=True))
    watched.steps()
    assert watched.scheduler.requests["r0"].is_finished()
    watched.look()
    watched.add(make_remote_request(1, 150))
    watched.steps(3)
    row = watched.look(5.0)
    assert (row.stalled_by, reasons(row)) == ("delayed_frees", {"memory": 1})
    connector_step(watched.scheduler, sent=["r0"])
    watched.steps()
    assert watched.look().stalled_by == ""


@pytest.mark.parametrize("state", [PauseState.PAUSED_ALL, PauseState.PAUSED_NEW])
def test_a_pause_on_purpose_is_no_stall(state: PauseState) -> None:
    watched = Waiting(make_scheduler())
    watched.scheduler.set_pause_state(state)
    watched.add(make_request(0, 16))
    watched.steps(3)
    watched.look()
    row = watched.look(1000.0)
    assert (row.stalled_seconds, row.stalled_by, row.idle_steps) == (None, "paused", 0)
    assert reasons(row) == {"paused": 1}
    watched.scheduler.set_pause_state(PauseState.UNPAUSED)
    watched.steps()
    row = watched.look()
    assert (row.stalled_seconds, row.stalled_by, reasons(row)) == (None, "", {})


def test_a_busy_engine_and_one_at_rest_are_not_stalled() -> None:
    watched = Waiting(make_scheduler(60, max_num_seqs=4))
    for i in range(40):
        watched.add(make_request(i, 30 + i, max_tokens=6))
        watched.steps(2, seconds=0.4)
        row = watched.look(0.1)
        assert (row.stalled_seconds, row.stalled_by) == (None, "")
    while watched.scheduler.requests:
        watched.steps()
    watched.look()
    row = watched.look(3600.0)
    assert (row.stalled_seconds, row.idle_steps, reasons(row)) == (None, 0, {})
    # Nor is it when work comes to it after a long rest, unlooked at until then.
    watched.add(make_request(99, 16))
    assert watched.look(0.5).stalled_seconds == pytest.approx(0.5)


def test_work_after_a_rest_in_which_nobody_looked_waits_since_it_came() -> None:
    watched = Waiting(make_scheduler())
    watched.add(make_request(0, 16, max_tokens=1))
    watched.steps()
    watched.look()
    watched.add(make_request(1, 16, max_tokens=1))
    watched.steps()
    watched.observer._section_tokens = watched.observer._taps.tokens  # as if the agent had been away for long
    watched.now += 3600.0
    watched.add(make_request(2, 16))
    assert watched.look(0.5).stalled_seconds == pytest.approx(0.5)


def test_an_engine_whose_loop_does_not_step_is_stalled_since_the_work_came() -> None:
    watched = Waiting(make_scheduler())
    watched.add(make_request(0, 16))
    row = watched.look(20.0)
    assert (row.stalled_seconds, row.idle_steps, row.stalled_by) == (20.0, 0, "unknown")


def test_what_it_keeps_is_let_go_with_the_requests() -> None:
    watched = Waiting(make_scheduler(21))
    watched.add(make_request(0, 200), make_request(1, 200), make_request(2, 200))
    watched.steps()
    watched.add(make_request(3, 16))
    for i in range(4):
        watched.scheduler.finish_requests(f"r{i}", RequestStatus.FINISHED_ABORTED)
    assert not watched.observer._refused
    assert not watched.observer._new


# -- requests that get no token while others do --------------------------------------------------------------


def silent_after(watched: Waiting, seconds: int, steps: int = 4) -> int:
    row = WaitingRow(reasons={}, idle_steps=0, stalled_seconds=None)
    for _ in range(seconds):
        watched.steps(steps, seconds=0.2)
        row = watched.look(1.0 - 0.2 * steps)
    return row.silent


def test_a_request_that_decodes_and_gets_no_token_is_silent_while_the_engine_steps() -> None:
    watched = Waiting(make_scheduler())
    watched.add(*(make_request(i, 16, max_tokens=1000) for i in range(3)))
    assert silent_after(watched, 40) == 0, "all get tokens"
    victim = watched.scheduler.running[1]
    victim.next_decode_eligible_step = 10**9  # never its turn
    assert silent_after(watched, 29) == 0
    assert silent_after(watched, 4) == 1
    victim.next_decode_eligible_step = 0
    assert silent_after(watched, 1) == 0


def test_time_in_which_the_engine_takes_no_step_makes_nobody_silent() -> None:
    watched = Waiting(make_scheduler())
    watched.add(make_request(0, 16, max_tokens=1000))
    assert silent_after(watched, 2) == 0
    for _ in range(60):
        row = watched.look(1.0)
    assert (row.silent, row.stalled_seconds is not None) == (0, True)
