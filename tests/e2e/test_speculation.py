"""Speculation on a real server: drafts that are accepted, streams that are cut meanwhile, and nothing that stays."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import lines

DRAFTS = 4
STREAMS = 20
BLOCKS = 600
MOST_LOADS = 30
SPECULATION = {"method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
TOKENS = 509  # plain tokens of the tiny model: 3 to 511


async def complete(client: httpx2.AsyncClient, number: int, max_tokens: int, cut_after: int | None = None) -> int:
    """Send a prompt; return the events read. ``cut_after``: hang up after so many.

    The prompt has every token, so that whatever is generated has a draft to follow it, and then repeats itself.
    """
    prompt = [3 + (number + 7 * k) % TOKENS for k in range(TOKENS)] + [3 + (number + k) % 9 for k in range(90)]
    body = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "stream": True,
    }
    events = 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        assert response.is_success
        async for line in lines(response):
            events += line.startswith("data: {")
            if cut_after is not None and events >= cut_after:
                break
    return events


async def load(url: str, streams: int, max_tokens: int, cut_after: int | None = None) -> list[int]:
    limits = httpx2.Limits(max_keepalive_connections=0)
    async with httpx2.AsyncClient(base_url=url, timeout=600.0, limits=limits, trust_env=False) as client:
        return await asyncio.gather(*(complete(client, i, max_tokens, cut_after) for i in range(streams)))


def speculation(agent: AgentProcess) -> dict[str, Any]:
    row: dict[str, Any] = agent.engine()["detail"]["speculation"]
    return row


def at_rest(agent: AgentProcess) -> bool:
    """Nothing runs, nothing waits, and the detail is of after that."""
    engine = agent.engine()
    return (
        engine["phase"] == "live"
        and engine["running"] == engine["waiting"] == 0
        and engine["detail"] is not None
        and sum(speculation(agent)["states"].values()) == 0
    )


def lives(agent: AgentProcess) -> int:
    """Requests that got their blocks and gave them back."""
    return sum(agent.engine()["detail"]["work"]["request_seconds"]["counts"])


def timed(agent: AgentProcess) -> int:
    """Calls that took blocks and were timed."""
    return sum(agent.engine()["detail"]["allocation"]["block_seconds"]["counts"])


async def test_cut_streams_are_interruptions_and_leave_no_residue(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder: Path = tmp_path_factory.mktemp("s")
    arguments = ["--speculative-config", json.dumps(SPECULATION)]
    with (
        AgentProcess(folder) as agent,
        EngineServer(
            folder / "engine.log", num_blocks=BLOCKS, max_num_seqs=STREAMS, args=arguments, env=agent.engine_env()
        ) as engine,
    ):
        engine.wait_ready()
        agent.wait_live()
        agent.wait(lambda: at_rest(agent))
        assert "speculation" not in agent.engine()["detail"]["unsupported"]
        assert speculation(agent)["interruptions_total"] == 0

        # Twin: all of them read to their ends.
        assert min(await load(engine.url, STREAMS, 64)) > 0
        vllm = engine.metrics()
        rounds = vllm["vllm:spec_decode_num_drafts_total"]
        # An idle engine fills one section after the other.
        agent.wait(lambda: at_rest(agent) and speculation(agent)["rounds_total"] == rounds > 0)
        row = speculation(agent)
        assert row["drafted_tokens_total"] == vllm["vllm:spec_decode_num_draft_tokens_total"]
        # vLLM also counts accepted tokens behind the end of a request.
        accepted = vllm["vllm:spec_decode_num_accepted_tokens_total"]
        assert 0 < row["accepted_tokens_total"] <= accepted <= row["accepted_tokens_total"] + DRAFTS * STREAMS
        assert (row["interruptions_total"], row["residue_blocks_total"], row["stuck"]) == (0, 0, 0)

        await load(engine.url, STREAMS, 1200, cut_after=12)
        # A stream that is cut just when its request has no drafts is none.
        agent.wait(lambda: at_rest(agent) and speculation(agent)["interruptions_total"] > STREAMS // 2)
        row = speculation(agent)
        assert row["interruptions_total"] <= STREAMS
        assert (row["residue_blocks_total"], row["stuck"]) == (0, 0)
        pool = agent.pool()
        assert pool is not None
        assert (pool["orphaned"], pool["over_freed"], pool["held"]) == (0, 0, 0)
        assert agent.engine()["hooks"]["errors"] == {}

        # The other two sections, on the same real engine.
        agent.wait(lambda: lives(agent) == 2 * STREAMS)
        detail = agent.engine()["detail"]
        allocation, work = detail["allocation"], detail["work"]
        assert allocation["blocks_taken_total"] == allocation["blocks_given_back_total"] > 0
        assert work["scheduled_tokens_total"] > work["prefill_tokens_total"] > 0
        assert work["tail_slots"] == 0

        # Calls that take blocks are timed in one step of seventeen: with so few steps there may have been none.
        for number in range(MOST_LOADS):
            if timed(agent):
                break
            # Each of another length, so that they don't always miss the same step.
            await load(engine.url, STREAMS, 64 + 7 * number)
            agent.wait(lambda: at_rest(agent))
        assert timed(agent) > 0
