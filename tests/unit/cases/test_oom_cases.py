"""Reports of memory that was refused: truly out, in pieces, taken by others, or free and of no use."""

from __future__ import annotations

import pytest

from agent.oom.judge import judge
from tests.unit.allocators import make_event, make_failure
from tests.unit.timeline import engine, failed, state, times, watch

MESSAGES = {
    "gpu-16": (
        "CUDA out of memory. Tried to allocate 1.71 GiB. GPU 0 has a total capacity of 22.30 GiB of which 1.52 GiB is "
        "free. Process 11 has 248.00 MiB memory in use. Process 12 has 248.00 MiB memory in use. Including non-PyTorch "
        "memory, this process has 20.28 GiB memory in use. Of the allocated memory 19.55 GiB is allocated by PyTorch, "
        "and 244.94 MiB is reserved by PyTorch but unallocated.",
        "out",
    ),
    "frag-01": (
        "CUDA out of memory. Tried to allocate 250.00 MiB. GPU 0 has a total capacity of 79.26 GiB of which 104.75 MiB "
        "is free. Including non-PyTorch memory, this process has 79.14 GiB memory in use. Of the allocated "
        "memory 74.77 "
        "GiB is allocated by PyTorch, and 3.87 GiB is reserved by PyTorch but unallocated.",
        "fragmented",
    ),
    "frag-02": (
        "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 4.00 GiB of which 2.35 GiB is "
        "free. Of the allocated memory 825.15 MiB is allocated by PyTorch, and 24.85 MiB is reserved by PyTorch but "
        "unallocated.",
        "unusable",
    ),
    "frag-07": (
        "CUDA out of memory. Tried to allocate 9.91 GiB. GPU 0 has a total capacity of 32.00 GiB of which 1.41 GiB is "
        "free. Including non-PyTorch memory, this process has 30.59 GiB memory in use. Of the allocated "
        "memory 21.50 GiB "
        "is allocated by PyTorch, and 8.59 GiB is reserved by PyTorch but unallocated.",
        "fragmented",
    ),
    "frag-11": (
        "CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which "
        "2.00 GiB is "
        "free. Including non-PyTorch memory, this process has 21.90 GiB memory in use. Of the allocated "
        "memory 21.10 GiB "
        "is allocated by PyTorch, and 60.00 MiB is reserved by PyTorch but unallocated.",
        "unusable",
    ),
    "foreign": (
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is "
        "free. Process 77 has 16.00 GiB memory in use. Including non-PyTorch memory, this process has 7.00 "
        "GiB memory in "
        "use. Of the allocated memory 6.40 GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but "
        "unallocated.",
        "foreign",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_message_has_its_cause(case: str) -> None:
    message, cause = MESSAGES[case]
    judgement = judge(message)
    assert judgement is not None
    assert judgement.cause == cause, judgement.sentence


@pytest.mark.parametrize("case", MESSAGES)
def test_the_verdict_says_the_cause_and_what_helps(case: str) -> None:
    message, cause = MESSAGES[case]
    event = make_event(message=message, requested_bytes=None, device_free_bytes=None, free_bytes=None)
    event = type(event)(sequence=1, kind="oom", at=1_700_000_010.0, where="execute_model", message=message, device=0)
    failure = make_failure(event=event)
    seen = watch(state(t, engines=(engine(),), **(failed(failure) if t >= 10 else {})) for t in times(120))
    verdict = seen.of("oom")
    assert failure.judgement is not None
    assert failure.judgement.cause == cause
    assert failure.judgement.sentence in verdict.sentence
    assert verdict.remedy
    assert "expandable_segments" in verdict.remedy or cause != "fragmented"


def test_gpu_07_graphs_that_do_not_fit_at_the_start_are_an_oom_and_no_leak() -> None:
    message = (
        "CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which "
        "20.00 MiB is "
        "free. Including non-PyTorch memory, this process has 79.05 GiB memory in use. Of the allocated "
        "memory 77.00 GiB "
        "is allocated by PyTorch, with 1.20 GiB allocated in private pools (e.g., CUDA Graphs), and 80.00 "
        "MiB is reserved "
        "by PyTorch but unallocated."
    )
    failure = make_failure(
        event=make_event(message=message, where="capture_model", free_bytes=None, largest_free_bytes=None)
    )
    seen = watch(state(t, engines=(engine(),), **failed(failure)) for t in times(60))
    assert seen.kinds() == {"oom"}
