"""The speculation section on real schedulers, synchronous and asynchronous, with drafts that are made up."""

from __future__ import annotations

import pytest

from engine_hooks.core.observers import UnsupportedError
from engine_hooks.core.speculation import SpeculationObserver
from tests.bed.scheduler import make_scheduler
from tests.engine.drafts import Bed, keep_back, states
from tests.engine.observing import Watched

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.


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
