"""Clients that call themselves something else each time: 100,000 tenants are a few rows, and no memory that grows."""

from __future__ import annotations

from vllm.v1.request import RequestStatus

from engine_hooks.core import tenants
from engine_hooks.core.tenants import MAX_TENANTS
from engine_hooks.detail import OTHER
from tests.engine.tenants import make, rows, watch

CROWD, AT_ONCE = 100_000, 1000


def test_a_hundred_thousand_tenants_are_a_few_rows_and_none_is_lost() -> None:
    watched = watch()
    scheduler = watched.scheduler
    for first in range(0, CROWD, AT_ONCE):
        ids = []
        for number in range(first, first + AT_ONCE):
            request = make(number, f"t{number}", f"session-{number}", ntok=1)
            ids.append(request.request_id)
            scheduler.add_request(request)
        scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
    seen = rows(watched)
    assert len(seen) <= MAX_TENANTS + 1
    assert OTHER in seen
    assert sum(row.requests_total for row in seen.values()) == CROWD
    assert sum(row.running + row.waiting for row in seen.values()) == 0
    held = [len(value) for value in vars(watched.observer).values() if isinstance(value, dict | list | set)]
    assert max(held, default=0) <= 8 * tenants.MAX_TENANTS
