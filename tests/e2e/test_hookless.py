"""A server without hooks is found and followed without a restart; one whose hooks report is not scraped as well."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.sources.scrape.targets import SETTLE_SECONDS
from tests.bed.agent import PATIENCE_SECONDS, AgentProcess
from tests.bed.engine import SLOW_STEPS, EngineServer
from tests.bed.load import LoadPlan, Tenant, run_load
from tests.e2e.conftest import Rig

BLOCKS, BLOCK_TOKENS = 200, 32
CAPACITY = BLOCKS - 1  # vLLM keeps one block for itself
SEATS, CLIENTS = 2, 5  # three of five requests wait, all the time
LONG = Tenant("acme", prompt=(100, 100), output=(1600, 1600))
DISCOVER = "sources:\n  device: {enabled: false}\n  scrape: {discover: true}\n"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder whose path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        yield Path(name)


def discovering(folder: Path) -> AgentProcess:
    """Start an agent that looks for servers on this machine."""
    folder.mkdir(exist_ok=True)
    settings = folder / "agent.yaml"
    settings.write_text(DISCOVER)
    return AgentProcess(folder, args=["--config", str(settings)])


def scraped(agent: AgentProcess, pid: int) -> dict[str, Any]:
    """Return what the agent reads on the page of the server ``pid``, empty when it does not: others may run here."""
    engines = (agent.state()["scrape"] or {}).get("engines", [])
    found: dict[str, Any] = next((each for each in engines if each["pid"] == pid), {})
    return found


def read_after(agent: AgentProcess, pid: int, tokens: float) -> dict[str, Any]:
    """Return what the agent reads on a page that is newer than one on which ``tokens`` were generated."""
    found: dict[str, Any] = {}

    def newer() -> bool:
        found.update(scraped(agent, pid))
        return found["generation_tokens"] is not None and found["generation_tokens"] > tokens

    agent.wait(newer)
    return found


def confirmed(agent: AgentProcess, label: str) -> set[str]:
    """Return the kinds of the verdicts on one engine that are confirmed and that somebody is told of."""
    verdicts = (agent.state()["judgement"] or {}).get("verdicts", [])
    return {
        each["kind"]
        for each in verdicts
        if each["subject"]["engine"] == label and each["phase"] == "confirmed" and each["tier"] != "note"
    }


def samples(agent: AgentProcess, label: str) -> dict[str, float]:
    """Return the ``kvtide_scraped_`` samples of one engine by name."""
    found = {}
    for line in agent.get("/metrics").splitlines():
        name, separator, rest = line.partition(f'{{engine="{label}"')
        if separator and name.startswith("kvtide_scraped_"):
            labels, _, value = rest.partition("} ")
            found[name.removeprefix("kvtide_scraped_") + labels] = float(value)
    return found


def until_waiting(engine: EngineServer, waiting: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (now := engine.metrics()["vllm:num_requests_waiting"]) != waiting:
        assert time.monotonic() < deadline, f"{now} requests wait"
        time.sleep(0.2)


async def test_a_busy_engine_is_attached_to_without_a_restart(place: Path) -> None:
    # Slow steps: a request lasts longer than a look at it.
    log, disabled = place / "engine.log", {"KVTIDE_DISABLE": "1", **SLOW_STEPS}
    with EngineServer(log, num_blocks=BLOCKS, block_size=BLOCK_TOKENS, max_num_seqs=SEATS, env=disabled) as engine:
        await asyncio.to_thread(engine.wait_ready)
        pids = engine.pids()
        plan = LoadPlan(requests=1000, seconds=600, concurrency=CLIENTS, tenants=(LONG,), seed=4)
        load = asyncio.create_task(run_load(engine.url, plan))
        await asyncio.to_thread(until_waiting, engine, CLIENTS - SEATS)
        with await asyncio.to_thread(discovering, place / "agent") as agent:
            try:
                await asyncio.to_thread(check_busy, agent, engine)
            finally:
                load.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await load
            await asyncio.to_thread(check_at_rest, agent, engine)
            assert engine.pids() == pids
            assert agent.engines() == [], "this engine has hooks"
            engine.kill()
            # Whichever is seen first: no page comes any more, or the process is gone, and then so is its row.
            gone = ("down", "gone")
            await asyncio.to_thread(agent.wait, lambda: scraped(agent, engine.pid).get("phase", "gone") in gone)
            assert scraped(agent, engine.pid).get("capacity_blocks") is None


def check_busy(agent: AgentProcess, engine: EngineServer) -> None:
    agent.wait(lambda: scraped(agent, engine.pid).get("generation_tokens_per_second") is not None)
    seen: list[dict[str, Any]] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(seen) < 3 and time.monotonic() < deadline:
        before = engine.metrics()
        ours = read_after(agent, engine.pid, before["vllm:generation_tokens_total"])
        after = engine.metrics()
        assert (ours["phase"], ours["impossible"]) == ("up", ""), "it works"
        assert confirmed(agent, ours["engine"]) == set(), "neither stale nor stalled"
        gauges = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
        first, last = ([page[name] for name in gauges] for page in (before, after))
        # A request that ends leaves its seat for a step, and its blocks: most looks are at two that go on.
        if first[:2] == last[:2] == [SEATS, CLIENTS - SEATS] and first[2] <= last[2]:
            assert [ours["running"], ours["waiting"]] == [SEATS, CLIENTS - SEATS]
            assert first[2] <= ours["usage_ratio"] <= last[2]
            assert round(first[2] * CAPACITY) <= ours["held_blocks"] <= round(last[2] * CAPACITY)
            assert ours["generation_tokens"] <= after["vllm:generation_tokens_total"]
            seen.append(ours)
    assert len(seen) == 3, "a request ended in nearly every look"
    ours = seen[-1]
    assert ours["generation_tokens_per_second"] > 0
    assert (ours["found"], ours["url"], ours["kind"], ours["failures"]) == ("process", engine.url, "vllm", 0)
    assert (ours["capacity_blocks"], ours["block_tokens"]) == (CAPACITY, BLOCK_TOKENS)
    assert ours["capacity_tokens"] == CAPACITY * BLOCK_TOKENS
    assert ours["held_blocks"] * BLOCK_TOKENS == ours["held_tokens"] > 0
    # What a page does not have is not known, and said to be so.
    assert ours["capacity_bytes"] is None
    assert {"bytes", "cached idle blocks", "tenants, sessions and requests"} <= ours["cannot"].keys()


def check_at_rest(agent: AgentProcess, engine: EngineServer) -> None:
    def same() -> bool:
        ours = scraped(agent, engine.pid)
        return (ours["running"], ours["waiting"], ours["held_blocks"]) == (0, 0, 0)

    agent.wait(same)
    own, ours = engine.metrics(), scraped(agent, engine.pid)
    shown = samples(agent, ours["engine"])
    for name in ("generation_tokens", "prompt_tokens", "preemptions"):
        assert ours[name] == own[f"vllm:{name if name != 'preemptions' else 'num_preemptions'}_total"]
        assert shown[f"{name}_total"] >= ours[name] >= 0
    assert shown["up"] == 1
    assert (shown["kv_blocks_capacity"], shown["kv_usage_ratio"], shown["requests_running"]) == (CAPACITY, 0, 0)
    assert (shown["stale"], shown["impossible"]) == (0, 0)
    assert shown["failures_total"] == 0


def test_one_whose_hooks_report_is_not_scraped_as_well(rig: Rig) -> None:
    rig.agent.stop()
    try:
        began = time.monotonic()
        with discovering(rig.folder) as agent:
            scrapes, connected = [], []

            def passed_over() -> bool:
                scrapes.append(scraped(agent, rig.engine.pid))
                if agent.engines():
                    connected.append(time.monotonic() - began)
                rows = (agent.state()["scrape"] or {}).get("passed_over", [])
                return {"pid": rig.engine.pid, "reason": "its hooks report"} in rows

            agent.wait(passed_over)
            if connected[0] < SETTLE_SECONDS:  # else this machine was too busy to tell
                assert not any(scrapes), "also not before its hooks had found the new agent"
            agent.wait(lambda: passed_over() and not scrapes[-1])
            agent.wait_live()
            assert "kvtide_kv_blocks_capacity" in agent.metrics()
    finally:
        rig.agent = AgentProcess(rig.folder)
