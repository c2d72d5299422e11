"""Why an allocation failed. Each cause has a twin beside it in which one number makes it another."""

from __future__ import annotations

from typing import Any

import pytest

from agent.oom.facts import OomFacts, facts_of
from agent.oom.judge import CAUSES, Judgement, judge, judge_facts
from agent.oom.log import MAX_FAILURES, FailureLog, Who
from agent.oom.message import parse
from engine_hooks.allocator import MIB, MemoryEvent
from tests.unit.allocators import make_event
from tests.unit.test_oom_message import ASYNC_LIMITED, TORCH_1, TORCH_2_5

GIB = 2**30
WHO = Who(instance="i", engine="m", process="", role="worker", rank=0, pid=7)

FULL: dict[str, Any] = {
    "requested": 200 * MIB,
    "free": 50 * MIB,
    "total": 80 * GIB,
    "allocated": 78 * GIB,
    "reserved": 78 * GIB + 20 * MIB,
    "unallocated": 20 * MIB,
    "others": 0,
}


def cause(**changes: Any) -> str:
    judged = judge_facts(None, OomFacts(**FULL | changes))
    assert judged.cause in CAUSES
    assert judged.sentence.endswith(".")
    assert judged.remedy.endswith(".")
    return judged.cause


def test_truly_out() -> None:
    assert cause() == "out"


def test_fragmented_when_torch_keeps_enough_in_pieces() -> None:
    assert cause(unallocated=200 * MIB) == "fragmented"
    assert cause(unallocated=149 * MIB) == "out"
    assert cause(unallocated=150 * MIB) == "fragmented", "with what is free on the device it would do"


def test_a_walk_knows_better_than_the_message() -> None:
    assert cause(unallocated=4 * GIB, shared_free=300 * MIB, largest_free=100 * MIB) == "unusable", "private pools' own"
    assert cause(unallocated=300 * MIB, shared_free=300 * MIB, largest_free=100 * MIB) == "fragmented"
    assert cause(unallocated=300 * MIB, shared_free=300 * MIB, largest_free=200 * MIB) == "unusable", "another stream's"
    assert cause(unallocated=100 * MIB, shared_free=20 * MIB, largest_free=20 * MIB) == "out"


def test_foreign_when_others_hold_what_was_missing() -> None:
    assert cause(requested=4 * GIB, others=4 * GIB - 50 * MIB, other_count=1) == "foreign"
    assert cause(requested=4 * GIB, others=4 * GIB - 51 * MIB, other_count=1) == "out"
    assert cause(others=500 * MIB, other_count=1) == "out", "a context, as any process has that touches the device"
    assert cause(others=1100 * MIB, other_count=2) == "foreign"
    assert cause(others=None, hidden=14 * GIB) == "foreign"
    assert cause(others=None, hidden=None) == "out"


def test_free_and_unusable() -> None:
    assert cause(free=200 * MIB) == "unusable"
    assert cause(free=179 * MIB) == "out"


def test_a_limit_of_this_process() -> None:
    judged = judge_facts(None, OomFacts(**FULL | {"free": 20 * GIB, "limit": 78 * GIB, "total": 100 * GIB}))
    assert judged.cause == "unusable"
    assert "set_per_process_memory_fraction" in judged.remedy
    roomy = judge_facts(None, OomFacts(**FULL | {"free": 20 * GIB, "limit": 90 * GIB, "total": 100 * GIB}))
    assert "set_per_process_memory_fraction" not in roomy.remedy


def test_expandable_segments_are_not_advised_where_they_are_on() -> None:
    facts = OomFacts(**FULL | {"unallocated": GIB})
    assert "expandable_segments:True" in judge_facts(None, facts).remedy
    assert "expandable_segments:True" not in judge_facts(None, facts._replace(expandable=True)).remedy


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TORCH_1, "fragmented"),
        (TORCH_2_5, "fragmented"),
        (TORCH_2_5.replace("2.00 GiB is reserved", "2.00 MiB is reserved"), "foreign"),
        (ASYNC_LIMITED, "out"),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED", "unknown"),
        ("No available memory for the cache blocks.", "out"),
        ("Free memory on device (1.2/14.74 GiB) on startup is less than desired", "foreign"),
    ],
)
def test_by_the_message_alone(text: str, expected: str) -> None:
    judged = judge(text)
    assert judged is not None
    assert judged.cause == expected


def test_in_a_container_this_process_is_listed_as_any_other() -> None:
    def facts(*sizes: str) -> OomFacts:
        listed = " ".join(f"Process {n} has {size} memory in use." for n, size in enumerate(sizes, 1001))
        return facts_of(
            parse(
                "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 0 "
                f"bytes is free. {listed} Of the allocated memory 38.00 GiB is allocated by PyTorch, and 1.00 GiB is "
                "reserved by PyTorch but unallocated."
            ),
            None,
        )

    assert (facts("39.50 GiB").others, facts("39.50 GiB").other_count) == (0, 0)
    assert facts("39.50 GiB", "38.00 GiB").others == 38 * GIB
    assert facts("38.00 GiB").others == 38 * GIB, "less than torch has: another's"
    assert facts("70.00 GiB").others == 70 * GIB, "far more than torch has: another's"
    assert facts().others is None, "nobody is listed: nothing is known"
    assert facts().hidden == 39 * GIB, "but it is taken, and not by torch"


def test_the_observers_numbers_come_first_and_its_limit_is_told_apart() -> None:
    said = parse(TORCH_2_5)
    seen = make_event(requested_bytes=5 * MIB, limit_bytes=80 * GIB, device_free_bytes=7, reserved_bytes=70 * GIB)
    facts = facts_of(said, seen)
    assert (facts.requested, facts.free, facts.reserved, facts.total) == (5 * MIB, 7, 70 * GIB, 80 * GIB)
    assert facts.limit == 72 * GIB  # the message's
    limited = facts_of(parse(TORCH_2_5.replace("72.00 GiB allowed; ", "")), make_event(limit_bytes=40 * GIB))
    assert (limited.limit, limited.total) == (40 * GIB, 80 * GIB)
    alone = facts_of(None, make_event(limit_bytes=40 * GIB, allocated_bytes=3, reserved_bytes=5))
    assert (alone.limit, alone.total, alone.unallocated) == (None, 40 * GIB, 2)


def test_an_event_is_judged_without_a_message_and_an_error_of_the_device_is_not() -> None:
    judged = judge("", make_event(message=""))
    assert isinstance(judged, Judgement)
    assert judged.cause == "fragmented"
    assert (
        judge("CUDA error: an illegal memory access", MemoryEvent(sequence=1, kind="illegal_address", at=0.0)) is None
    )


# -- the log ----------------------------------------------------------------------------------------------


def counts(log: FailureLog, now: float) -> dict[tuple[str, str, str], int]:
    return {(c.engine or c.process, c.kind, c.cause): c.count for c in log.counts(now)}


def test_an_event_that_is_told_again_is_one_failure() -> None:
    log = FailureLog()
    for _ in range(3):
        log.add(WHO, make_event(), 100.0)
    assert len(log.failures()) == 1
    assert counts(log, 100.0) == {("m", "oom", "fragmented"): 1}
    log.add(WHO, make_event(count=4, at=1_700_000_999.0), 101.0)
    assert counts(log, 101.0) == {("m", "oom", "fragmented"): 4}
    assert [failure.event.count for failure in log.failures()] == [4]


def test_a_failure_counts_when_its_cause_is_known_and_its_count_never_falls() -> None:
    log = FailureLog()
    log.add(WHO, make_event(message="", where=""), 100.0)
    assert (len(log.failures()), counts(log, 100.5)) == (1, {})
    foreign = "CUDA out of memory. Tried to allocate 150.00 MiB. Process 41 has 10.00 GiB memory in use."
    told = make_event(message=foreign, free_bytes=0, largest_free_bytes=0, device_free_bytes=MIB)
    log.add(WHO, told, 100.6)
    assert counts(log, 100.7) == {("m", "oom", "foreign"): 1}
    log.add(WHO, make_event(message=foreign), 100.8)  # judged anew: what was counted stays
    assert counts(log, 100.9) == {("m", "oom", "foreign"): 1}


def test_one_whose_message_never_comes_is_counted_too() -> None:
    log = FailureLog()
    log.add(WHO, make_event(message=""), 100.0)
    assert counts(log, 103.0) == {("m", "oom", "fragmented"): 1}


def test_the_log_is_bounded_and_still_counts() -> None:
    log = FailureLog()
    for number in range(MAX_FAILURES + 36):
        log.add(WHO, make_event(sequence=number, at=float(number), message=""), 100.0)
    assert len(log.failures()) == MAX_FAILURES
    assert log.failures()[0].event.at == MAX_FAILURES + 35
    assert sum(counts(log, 200.0).values()) == MAX_FAILURES + 36


def test_names_from_outside_do_not_make_series_for_ever() -> None:
    log = FailureLog()
    for number in range(1000):
        who = Who(instance=str(number), engine=f"e{number}", process="", role="worker", rank=0, pid=7)
        log.add(who, make_event(kind=f"kind{number}", message="x"), 100.0)
    found = counts(log, 100.0)
    assert len(found) <= 130
    assert sum(found.values()) == 1000
    assert {kind for _, kind, _ in found} == {"other"}
