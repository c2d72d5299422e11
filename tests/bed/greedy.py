"""Greedy requests with known outputs: whatever is done to an engine, what it serves must be token for token the same.

Needs saved weights: with dummy weights a spoiled block changes nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx2

from tests.bed.load import FIRST_TOKEN, LAST_TOKEN

PROMPTS = 24
CONCURRENCY = 12
ANSWER_SECONDS = 300.0  # then a request is lost: no lease is longer than some seconds

Tokens = dict[int, tuple[int, ...]]


@dataclass(slots=True)
class Answer:
    """What came back for one request: ``tokens`` is None unless it was served to its end."""

    status: int
    tokens: tuple[int, ...] | None
    text: str = ""


def prompts(seed: int = 0) -> list[tuple[list[int], int]]:
    """Return prompts as token ids, with how much each shall generate; some share a beginning."""
    draw = random.Random(seed)
    shared = [draw.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(96)]
    found = []
    for number in range(PROMPTS):
        own = [draw.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(draw.randint(20, 400))]
        found.append(((shared if number % 2 else []) + own, draw.randint(40, 300)))
    return found


async def ask(client: httpx2.AsyncClient, prompt: list[int], tokens: int) -> Answer:
    """Send one greedy request and return what comes back."""
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    try:
        response = await client.post("/v1/completions", json=body)
    except httpx2.HTTPError as error:
        return Answer(0, None, repr(error))
    if response.status_code != 200:
        return Answer(response.status_code, None, response.text[:200])
    choice = response.json()["choices"][0]
    whole = choice["finish_reason"] == "length"
    return Answer(200, tuple(choice["token_ids"]) if whole else None, str(choice["finish_reason"]))


async def serve_all(url: str, wanted: Iterator[int], take: Callable[[int, Answer], None]) -> None:
    """Send the prompts of these numbers, a dozen at a time; ``take`` gets each answer."""
    known = prompts()
    limits = httpx2.Limits(max_connections=CONCURRENCY, max_keepalive_connections=0)
    async with httpx2.AsyncClient(base_url=url, timeout=ANSWER_SECONDS, limits=limits, trust_env=False) as client:

        async def worker() -> None:
            for number in wanted:
                take(number, await ask(client, *known[number]))

        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(worker())


def quiet(url: str) -> Tokens:
    """Return the tokens of each prompt with no lever pulled."""
    found: Tokens = {}

    def take(number: int, answer: Answer) -> None:
        if answer.tokens is None:
            raise RuntimeError(f"prompt {number} was not served: {answer}")
        found[number] = answer.tokens

    asyncio.run(serve_all(url, iter(range(PROMPTS)), take))
    return found
