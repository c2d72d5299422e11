"""Data-parallel and tensor-parallel engines: no output changes, and each rank has exact accounts of its own."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from kvtide_chaos.kv_blocks import arm, leak_env, wait_planted

from tests.bed.agent import PATIENCE_SECONDS, AgentProcess
from tests.bed.engine import MODEL_NAME, EngineServer
from tests.bed.load import FIRST_TOKEN, LAST_TOKEN

BLOCKS = 300
PREFIX, OWN, OUTPUT = 64, 40, 48  # tokens
RANK_HEADER = "X-data-parallel-rank"
ANSWER_SECONDS = 600.0  # two ranks that wait for each other at each token are slow where a core has much else to do
DISABLED = {"KVTIDE_DISABLE": "1"}
START_SECONDS = 600.0  # up to seven processes that each import torch and vLLM: 45 s on two idle cores

pytestmark = pytest.mark.timeout(2 * START_SECONDS + 120)


def prompts() -> list[list[int]]:
    """Twelve prompts that share a prefix."""
    draw = random.Random(12)

    def tokens(count: int) -> list[int]:
        return [draw.randint(FIRST_TOKEN, LAST_TOKEN) for _ in range(count)]

    prefix = tokens(PREFIX)
    return [prefix + tokens(OWN) for _ in range(12)]


def complete(engine: EngineServer, prompt: list[int], *, rank: int | None = None) -> list[int]:
    """Return the token ids that the engine generates greedily; ``rank`` is the data-parallel one to do it."""
    body = {
        "model": MODEL_NAME,
        "prompt": prompt,
        "max_tokens": OUTPUT,
        "ignore_eos": True,
        "temperature": 0.0,
        "return_token_ids": True,
    }
    headers = {} if rank is None else {RANK_HEADER: str(rank)}
    url = engine.url + "/v1/completions"
    answer = httpx2.post(url, json=body, headers=headers, timeout=ANSWER_SECONDS, trust_env=False)
    assert answer.is_success, answer.text
    tokens: list[int] = answer.json()["choices"][0]["token_ids"]
    assert len(tokens) == OUTPUT
    return tokens


def complete_all(engine: EngineServer, *, ranks: int = 1) -> list[list[int]]:
    """Return the outputs of all prompts, four at a time, dealt to the ranks in turn."""
    with ThreadPoolExecutor(4) as pool:
        turns = [None if ranks == 1 else i % ranks for i in range(12)]
        return list(pool.map(lambda pair: complete(engine, pair[0], rank=pair[1]), zip(prompts(), turns, strict=True)))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """The outputs of an engine of one rank without hooks."""
    log = tmp_path_factory.mktemp("plain") / "engine.log"
    with EngineServer(log, num_blocks=BLOCKS, env=DISABLED) as engine:
        engine.wait_ready(START_SECONDS)
        outputs = complete_all(engine)
        # Two outputs that are the same would hide that one request got another's.
        assert len({tuple(tokens) for tokens in outputs}) == len(outputs)
        assert "kvtide" not in log.read_text()
    return outputs


def at_rest(engine: dict[str, Any]) -> bool:
    return engine["phase"] == "live" and engine["running"] == engine["waiting"] == 0


def accounts(engine: dict[str, Any]) -> tuple[int, int, int, bool]:
    pool = engine["pool"]
    return pool["held"], pool["orphaned"], pool["over_freed"], pool["exact"]


def test_two_data_parallel_ranks(place: Path, plain: list[list[int]]) -> None:
    leaks, args = place / "leak", ("--data-parallel-size", "2")
    with AgentProcess(place) as agent:
        env = {**agent.engine_env(), **leak_env(leaks)}
        with EngineServer(place / "engine.log", num_blocks=BLOCKS, env=env, args=args) as engine:
            engine.wait_ready(START_SECONDS)
            agent.wait(lambda: [e["phase"] for e in agent.engines()] == ["live", "live"])
            assert complete_all(engine, ranks=2) == plain
            agent.wait(lambda: all(map(at_rest, agent.engines())))
            ranks = {e["pid"]: e for e in agent.engines()}
            assert ranks.keys() == set(engine.core_pids())
            assert sorted(e["engine"].rpartition("-")[2] for e in ranks.values()) == ["dp0", "dp1"]
            assert all(e["steps"] > OUTPUT for e in ranks.values()), "both ranks must have worked"
            assert [accounts(e) for e in ranks.values()] == [(0, 0, 0, True)] * 2

            arm(leaks, 1, 3)
            complete(engine, prompts()[0], rank=1)
            planted = wait_planted(leaks, PATIENCE_SECONDS)
            assert ranks[planted.pid]["engine"].endswith("-dp1")
            leaked = (planted.n, planted.n, 0, True)
            expected = {pid: leaked if pid == planted.pid else (0, 0, 0, True) for pid in ranks}
            agent.wait(lambda: {e["pid"]: accounts(e) for e in agent.engines()} == expected)
            complete(engine, prompts()[0], rank=0)
            agent.wait(lambda: {e["pid"]: accounts(e) for e in agent.engines()} == expected)
            assert [e["hooks"]["errors"] for e in agent.engines()] == [{}, {}]
            exported = agent.get("/metrics")
            for e in agent.engines():
                n = planted.n if e["pid"] == planted.pid else 0
                assert f'kvtide_kv_blocks_orphaned{{engine="{e["engine"]}"}} {float(n)}' in exported


def test_two_tensor_parallel_ranks(place: Path, plain: list[list[int]]) -> None:
    """One engine core, two workers: one account, and outputs as without hooks."""
    args = ("--tensor-parallel-size", "2")
    with (
        AgentProcess(place) as agent,
        EngineServer(place / "engine.log", num_blocks=BLOCKS, env=agent.engine_env(), args=args) as engine,
    ):
        engine.wait_ready(START_SECONDS)
        agent.wait_live()
        assert complete_all(engine) == plain
        agent.wait(lambda: at_rest(agent.engine()))
        assert agent.engine()["pid"] == engine.core_pid()
        assert accounts(agent.engine()) == (0, 0, 0, True)
        assert agent.engine()["hooks"]["errors"] == {}
        assert json.loads(agent.get("/api/v1/state"))["engines"][0]["steps"] > OUTPUT
