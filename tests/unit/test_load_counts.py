"""The load that tests and the demo send counts each request once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx2
import pytest

from tests.bed.load import LoadPlan, Tenant, run_load


async def test_a_stream_that_was_cut_and_is_still_closing_when_the_time_is_up_is_counted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'data: {"usage": {"completion_tokens": 1000}}\n'

    @asynccontextmanager
    async def stream(*_: object, **__: object) -> AsyncIterator[SimpleNamespace]:
        try:
            yield SimpleNamespace(is_success=True, aiter_bytes=pieces)
        finally:
            await asyncio.sleep(60.0)  # the connection is slow to close

    monkeypatch.setattr(httpx2.AsyncClient, "stream", stream)
    plan = LoadPlan(requests=1, seconds=0.2, concurrency=1, tenants=(Tenant("acme", abort_ratio=1.0),))
    report = await run_load("http://127.0.0.1:1", plan)
    assert (report.started, report.aborted, report.unfinished) == (1, 1, 0)
