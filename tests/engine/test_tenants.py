"""Tenants on vLLM's real scheduler: requests, tokens and endings, counted for whom they were."""

from __future__ import annotations

from typing import Any

import pytest
from vllm.v1.request import RequestStatus, StreamingUpdate

from tests.bed.scheduler import step
from tests.engine.tenants import abort, held, make, rows, watch


def test_nobody_at_start() -> None:
    assert watch().look() == ()


def test_counts_of_two_tenants() -> None:
    watched = watch()
    for i in range(3):
        watched.scheduler.add_request(make(i, "acme", max_tokens=5))
    watched.scheduler.add_request(make(3, "umbrella", ntok=40, max_tokens=500))
    assert {name: (row.running, row.waiting) for name, row in rows(watched).items()} == {
        "acme": (0, 3),
        "umbrella": (0, 1),
    }
    step(watched.scheduler)
    seen = rows(watched)
    assert (seen["acme"].running, seen["acme"].waiting, seen["acme"].generated_tokens_total) == (3, 0, 3)
    assert (seen["acme"].prompt_tokens_total, seen["umbrella"].prompt_tokens_total) == (300, 40)
    assert seen["acme"].references == sum(
        len(watched.observer._view.managers[0].req_to_blocks[f"r{i}"]) for i in range(3)
    )
    while any(f"r{i}" in watched.scheduler.requests for i in range(3)):
        step(watched.scheduler)
    seen = rows(watched)
    acme = seen["acme"]
    assert (acme.running, acme.waiting, acme.held, acme.references) == (0, 0, 0.0, 0)
    assert (acme.requests_total, acme.generated_tokens_total, acme.ended_total) == (3, 15, {"finished": 3})
    assert (seen["umbrella"].running, seen["umbrella"].ended_total) == (1, {})
    abort(watched, 3)
    assert rows(watched)["umbrella"].ended_total == {"aborted_front_end": 1}
    assert not watched.observer._living


def test_a_request_that_is_aborted_before_admission_has_ended_too() -> None:
    watched = watch(max_num_seqs=1)
    for i in range(2):
        watched.scheduler.add_request(make(i, "acme", "talk"))
    step(watched.scheduler)
    abort(watched, 1)
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.requests_total, acme.ended_total) == (1, 0, 2, {"aborted_front_end": 1})
    (turn,) = watched.observer.sessions.turns("acme", "talk")
    assert (turn.tokens, turn.blocks) == (100, 0)
    abort(watched, 1)  # the second of the two messages that vLLM handles for each abort
    assert rows(watched)["acme"].ended_total == {"aborted_front_end": 1}


def finish(ids: Any, status: RequestStatus = RequestStatus.FINISHED_ABORTED, **params: Any) -> dict[str, int]:
    """How a request that runs is counted once it was ended from outside by ``ids``."""
    watched = watch()
    request = make(0, "acme")
    for name, value in params.items():
        setattr(request.sampling_params, name, value)
    watched.scheduler.add_request(request)
    step(watched.scheduler)
    watched.scheduler.finish_requests(ids, status)
    return rows(watched)["acme"].ended_total


def test_who_ended_a_request_is_told_apart() -> None:
    assert finish(["r0"]) == {"aborted_front_end": 1}
    assert finish(["r0"], stop=["x"]) == {"stop_or_abort": 1}  # vLLM's front end aborts at a stop string that it finds
    assert finish(None) == {"aborted_engine": 1}
    assert finish("r0") == {"finished": 1}  # a streamed input that was closed
    assert finish({"r0"}, RequestStatus.FINISHED_ERROR) == {"error": 1}


def test_preemptions_are_counted_and_the_request_lives_on() -> None:
    watched = watch(num_blocks=40)
    for i in range(6):
        watched.scheduler.add_request(make(i, "acme", ntok=60, max_tokens=200))
    for _ in range(150):
        step(watched.scheduler)
    acme = rows(watched)["acme"]
    preempted = sum(request.num_preemptions for request in watched.scheduler.requests.values())
    assert acme.preempted_total >= preempted > 0
    assert acme.running + acme.waiting == len(watched.scheduler.requests)
    assert acme.generated_tokens_total >= sum(r.num_output_tokens for r in watched.scheduler.requests.values())


def test_requests_whose_blocks_were_kept_are_forgotten_although_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an agent there is no section: an engine that only prefills must not remember every request."""
    watched = watch()
    monkeypatch.setattr(watched.scheduler, "_connector_finished", lambda request: (True, None))
    for i in range(20):
        watched.scheduler.add_request(make(i, "acme"))
        step(watched.scheduler)
        abort(watched, i)
        watched.taps.take_in()  # as with each report, whether anybody hears it or not
        assert len(watched.observer._living) == 1
        watched.scheduler._free_blocks(watched.scheduler.requests[f"r{i}"])
    watched.taps.take_in()
    assert not watched.observer._living
    assert not watched.observer._ran
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.requests_total, acme.generated_tokens_total) == (0, 0, 20, 20)


def test_tokens_of_a_request_that_ran_only_between_two_looks_are_counted() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme"))
    watched.look()
    step(watched.scheduler)
    watched.scheduler._preempt_request(watched.scheduler.running.pop(), 0.0)
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.generated_tokens_total) == (0, 1, 1)
    assert rows(watched)["acme"].generated_tokens_total == 1


def test_a_finished_request_whose_blocks_are_kept_still_counts_as_a_holder(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = watch()
    watched.scheduler.add_request(make(0, "acme"))
    step(watched.scheduler)
    monkeypatch.setattr(watched.scheduler, "_connector_finished", lambda request: (True, None))
    abort(watched, 0)
    acme = rows(watched)["acme"]
    assert (acme.running, acme.waiting, acme.ended_total) == (0, 0, {"aborted_front_end": 1})
    assert acme.held == acme.references == held(watched) > 0
    watched.scheduler._free_blocks(watched.scheduler.requests["r0"])
    acme = rows(watched)["acme"]
    assert (acme.held, acme.references, acme.ended_total) == (0.0, 0, {"aborted_front_end": 1})
    assert not watched.observer._living


def test_the_next_piece_of_a_streamed_input_is_no_new_request() -> None:
    watched = watch()
    first = make(0, "acme", ntok=20, max_tokens=3)
    first.resumable = True
    watched.scheduler.add_request(first)
    for _ in range(4):
        step(watched.scheduler)
    assert first.status == RequestStatus.WAITING_FOR_STREAMING_REQ
    before = rows(watched)["acme"]
    piece = make(0, "acme", ntok=20, max_tokens=3)
    piece.resumable = True
    assert StreamingUpdate.from_request(piece) is not None
    watched.scheduler.add_request(piece)
    for _ in range(4):
        step(watched.scheduler)
    after = rows(watched)["acme"]
    assert (before.requests_total, after.requests_total) == (1, 1)
    assert (before.generated_tokens_total, after.generated_tokens_total) == (3, 6)
    assert (before.prompt_tokens_total, after.prompt_tokens_total) == (20, 40)
