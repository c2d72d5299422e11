"""What interrupted speculation leaves behind, and drafts that are stuck: on real schedulers."""

from __future__ import annotations

import pytest

from engine_hooks.core.drafting import STUCK_SECONDS
from tests.bed.scheduler import make_request
from tests.engine.drafts import Bed, keep_back, states

# isort: split
# What tests.bed.scheduler sets in the environment must be there before vLLM is imported.

# -- residue -----------------------------------------------------------------------------------------------


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
