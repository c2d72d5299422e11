"""The ledger's books on the real pool: exact without a wrapper around ``get_new_blocks``, which only times calls."""

from __future__ import annotations

from typing import Any

import pytest

from engine_hooks.core.steps import TIMED_STEPS
from tests.bed.scheduler import make_request, make_scheduler, step
from tests.engine.accounting import LONG, Watched, fill


@pytest.fixture
def watched() -> Watched:
    return Watched(make_scheduler(num_blocks=2000))


def timed(watched: Watched) -> int:
    return sum(watched.accounts.ledger.new_seconds.counts)


def test_every_block_is_counted_and_one_step_in_seventeen_is_timed(watched: Watched) -> None:
    plain = type(watched.pool).get_new_blocks
    ledger, calls = watched.accounts.ledger, []
    for i in range(200):
        watched.scheduler.add_request(make_request(i, 20, 4))
        watched.accounts.observe_step()
        before = timed(watched)
        step(watched.scheduler)
        calls.append(timed(watched) - before)
        assert (getattr(watched.pool.get_new_blocks, "__func__", None) is plain) == (not calls[-1])
    assert [i for i, timed_here in enumerate(calls, start=1) if timed_here] == list(
        range(TIMED_STEPS, 201, TIMED_STEPS)
    )
    assert ledger.new == 200 * 2
    assert ledger.references == ledger.recount()


def test_blocks_that_a_prefix_hit_revives_are_not_new_ones(watched: Watched) -> None:
    for name in range(2):
        request = make_request(1, 160, 1)
        request.request_id = f"again{name}"
        watched.scheduler.add_request(request)
        step(watched.scheduler)
    ledger = watched.accounts.ledger
    assert not watched.scheduler.requests
    assert (ledger.new, ledger.revived, ledger.returned) == (10 + 1, 9, 10 + 10)


def test_while_an_audit_is_under_way_the_blocks_that_are_taken_are_known(watched: Watched) -> None:
    fill(watched.scheduler, 5)
    watched.accounts.ledger.timing = False
    before = timed(watched)
    watched.accounts.request_audit()
    watched.accounts.advance_audit(0.0)
    taken = watched.pool.get_new_blocks(3)
    assert {block.block_id for block in taken} <= watched.accounts.ledger.changed
    assert timed(watched) == before
    while watched.accounts.advance_audit(LONG):
        pass


def test_what_another_wraps_meanwhile_stays_and_is_counted_once(watched: Watched) -> None:
    ledger, pool = watched.accounts.ledger, watched.pool
    assert ledger.timing
    ours, seen = pool.get_new_blocks, []

    def theirs(number: int) -> Any:
        seen.append(number)
        return ours(number)

    pool.get_new_blocks = theirs
    for on in (False, True):
        ledger.timing = on
        pool.get_new_blocks(2)
    assert (seen, timed(watched), ledger.new) == ([2, 2], 1, 4)
    ledger.timing = False
    assert pool.get_new_blocks is theirs
