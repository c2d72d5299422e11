"""A load of completions on one server of this machine: bounded in count and in time, seeded, with cut streams.

Runs in the agent environment (httpx2). Prompts are token ids, so that their lengths are exact.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx2

# Plain tokens of the tiny model: 0-2 are special.
FIRST_TOKEN, LAST_TOKEN = 3, 511
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_ERRORS = 20
ERROR_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Tenant:
    """What one tenant sends; lengths are (least, most) tokens, ``prefix`` are its shared first tokens."""

    name: str
    weight: float = 1.0
    prompt: tuple[int, int] = (32, 256)
    output: tuple[int, int] = (16, 64)
    prefix: int = 0
    abort_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """At most ``requests`` requests in at most ``seconds``, ``concurrency`` at a time; the same seed, the same load."""

    requests: int = 60
    seconds: float = 60.0
    concurrency: int = 8
    tenants: tuple[Tenant, ...] = (Tenant("acme"),)
    seed: int = 0
    model: str = "tiny"
    tenant_header: str = "X-Tenant-Id"


@dataclass(slots=True)
class LoadReport:
    """How it went: ``started`` is the sum of the four that follow it.

    ``aborted`` streams were cut on purpose, ``unfinished`` ones when the time was up. ``failed`` are connection
    errors and all answers but 2xx; ``errors`` has the texts of the first few. ``tokens`` were generated and received.
    """

    started: int = 0
    completed: int = 0
    aborted: int = 0
    failed: int = 0
    unfinished: int = 0
    tokens: int = 0
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Planned:
    tenant: str
    prompt: list[int]
    output: int
    # Cut the stream once so many tokens have come; None reads it to its end.
    cut_after: int | None


def plan_requests(plan: LoadPlan) -> Iterator[_Planned]:
    """Yield the requests of a plan, each drawn from the plan's seed."""
    draw = random.Random(plan.seed)
    weights = [tenant.weight for tenant in plan.tenants]
    for _ in range(plan.requests):
        (tenant,) = draw.choices(plan.tenants, weights)
        length = max(draw.randint(*tenant.prompt), tenant.prefix + 1)
        output = draw.randint(*tenant.output)
        cut = draw.randint(1, max(1, output // 2)) if draw.random() < tenant.abort_ratio else None
        # The prefix depends on the tenant's name alone, so that it is shared by runs with other seeds too.
        prompt = _tokens(random.Random(zlib.crc32(tenant.name.encode())), tenant.prefix)
        prompt += _tokens(draw, length - tenant.prefix)
        yield _Planned(tenant.name, prompt, output, cut)


async def run_load(url: str, plan: LoadPlan, report: LoadReport | None = None) -> LoadReport:
    """Send the plan's requests to the server at ``url`` on this machine; return when all are done or time is up.

    A ``report`` that is passed in is kept up to date meanwhile.
    """
    if urlsplit(url).hostname not in LOOPBACK:
        raise ValueError(f"load goes to this machine only, not to {url}")
    report = report if report is not None else LoadReport()
    requests = plan_requests(plan)
    # A connection for each request: a kept one that the server closes just as we use it would look like its failure.
    limits = httpx2.Limits(max_connections=plan.concurrency, max_keepalive_connections=0)
    # trust_env: a proxy of the environment must not get between us and the server.
    async with httpx2.AsyncClient(base_url=url, timeout=plan.seconds, limits=limits, trust_env=False) as client:

        async def worker() -> None:
            # All workers draw from one iterator: each request is sent once.
            for request in requests:
                await _send(client, plan, request, report)

        try:
            async with asyncio.timeout(plan.seconds), asyncio.TaskGroup() as group:
                for _ in range(plan.concurrency):
                    group.create_task(worker())
        except TimeoutError:
            pass
    return report


async def _send(client: httpx2.AsyncClient, plan: LoadPlan, request: _Planned, report: LoadReport) -> None:
    body = {
        "model": plan.model,
        "prompt": request.prompt,
        "max_tokens": request.output,
        "ignore_eos": True,
        "temperature": 0.0,
        "user": request.tenant,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    headers = {plan.tenant_header: request.tenant}
    report.started += 1
    received, cut = 0, False
    try:
        async with client.stream("POST", "/v1/completions", json=body, headers=headers) as response:
            if not response.is_success:
                await response.aread()
                _fail(report, f"{response.status_code}: {response.text}")
                return
            async for line in lines(response):
                received = max(received, _received(line))
                if request.cut_after is not None and received >= request.cut_after:
                    report.aborted += 1
                    cut = True
                    return
        report.completed += 1
    except (httpx2.HTTPError, ValueError) as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # the time is up, and the stream broke before it was told so
            report.unfinished += not cut
            raise asyncio.CancelledError from error
        _fail(report, repr(error))
    except asyncio.CancelledError:
        report.unfinished += not cut  # the time may be up while one that was cut is being closed
        raise
    finally:
        report.tokens += received


async def lines(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield a stream's lines. They end at a line feed alone: a generated text may hold what else ends one in Python."""
    rest = b""
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode()


def _received(line: str) -> int:
    """Return how many tokens have been generated so far, as an event of the stream tells; 0 if it does not."""
    data = line.removeprefix("data: ")
    if data in (line, "[DONE]"):
        return 0
    event: dict[str, Any] = json.loads(data)
    if "error" in event:
        raise ValueError(f"error in the stream: {event['error']}")
    return int((event.get("usage") or {}).get("completion_tokens", 0))


def _fail(report: LoadReport, text: str) -> None:
    report.failed += 1
    if len(report.errors) < MAX_ERRORS:
        report.errors.append(text[:ERROR_CHARACTERS])


def _tokens(draw: random.Random, count: int) -> list[int]:
    return [draw.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]
