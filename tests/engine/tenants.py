"""What the tests of tenants and sessions share: a watched scheduler, and requests with marks."""

from __future__ import annotations

from typing import Any

from vllm.v1.request import Request, RequestStatus

from engine_hooks.core.marks import MARKS_KEY, front_marks
from engine_hooks.core.tenants import MAX_TENANTS, TenantObserver
from engine_hooks.detail import TenantRow
from tests.bed.scheduler import make_request, make_scheduler
from tests.engine.observing import Watched

Tenants = Watched[TenantObserver]


def watch(num_blocks: int = 2000, env: dict[str, str] | None = None, **scheduler: Any) -> Tenants:
    return Watched(make_scheduler(num_blocks, **scheduler), TenantObserver, env)


def make(i: int, tenant: str = "", session: str = "", ntok: int = 100, **kwargs: Any) -> Request:
    request = make_request(i, ntok, **kwargs)
    if tenant or session:
        request.sampling_params.extra_args = {MARKS_KEY: front_marks(tenant, session)}
    return request


def rows(watched: Tenants) -> dict[str, TenantRow]:
    found = watched.look()
    assert len(found) == len({row.tenant for row in found}) <= MAX_TENANTS + 1
    return {row.tenant: row for row in found}


def abort(watched: Tenants, *numbers: int) -> None:
    watched.scheduler.finish_requests([f"r{i}" for i in numbers], RequestStatus.FINISHED_ABORTED)


def held(watched: Tenants) -> int:
    return sum(block.ref_cnt > 0 for block in watched.pool.blocks if not block.is_null)
