"""``python -m bench.corpus.play PART``: a real agent records a real ``vllm serve`` on the CPU; needs five minutes.

What is played: the engine starts; prompts that share a prefix; clients that go away; a restart with a small pool; more
than it can hold; a leak, planted as in the demo. Each becomes a labelled bundle of its own under build/corpus.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

from kvtide_chaos.kv_blocks import arm, leak_env, wait_planted

from agent.bundle.format import Header, Label, Writer, read
from agent.cli.client import AgentClient
from agent.state import AgentState
from agent.subject import Subject
from bench.corpus.scenario import Part
from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer
from tests.bed.load import LoadPlan, Tenant, run_load

CACHE = Path(__file__).parents[2] / "build" / "corpus"
CHAPTERS = {
    "engine starts": "",
    "shared prefixes": "",
    "abort storm": "",
    "restart": "",
    "small pool": "kv_pressure",
    "leak under load": "kv_orphan",
}
PLAY = 1  # to be raised with what is played: recordings of others are not taken for it
ROOMY, SMALL = 400, 96  # blocks of 32 tokens
START_SECONDS = 300.0
OTHERS = (Tenant("acme", prompt=(40, 250), output=(20, 80), prefix=32), Tenant("initech", prompt=(20, 80)))


@dataclass(frozen=True, slots=True)
class Chapter:
    """What was played between two moments of the monotonic clock, and what was wrong in it."""

    name: str
    began: float
    ended: float
    label: Label | None = None


def path_of(part: Part, chapter: str) -> Path:
    """Return where a chapter is kept."""
    digest = hashlib.sha256(f"{PLAY}/{part}/{chapter}".encode()).hexdigest()
    return CACHE / f"engine-{digest[:20]}.kvtide"


def play(part: Part, folder: Path) -> list[Chapter]:
    """Play all chapters and write their bundles. Raises what the engine or the agent raise when they fail."""
    rng, chapters = Random(f"play {part}"), []
    with AgentProcess(folder) as agent:
        env = {**agent.engine_env(), **leak_env(folder / "leak"), "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8"}
        began = time.monotonic()
        with EngineServer(folder / "roomy.log", num_blocks=ROOMY, env=env) as engine:
            _ready(engine, agent)
            _load(engine, rng, 8, OTHERS, 4)
            chapters.append(_over("engine starts", began))
            chapters.append(_shared_prefixes(engine, rng))
            chapters.append(_abort_storm(engine, rng))
            began = time.monotonic()
            _load(engine, rng, 6, OTHERS, 4)
        with EngineServer(folder / "small.log", num_blocks=SMALL, env=env) as engine:
            _ready(engine, agent)
            _load(engine, rng, 14, OTHERS, 3)
            chapters.append(_over("restart", began))
            name = str(agent.engine()["engine"])
            chapters.append(_small_pool(engine, rng, name))
            time.sleep(6)
            chapters.append(_leak(engine, rng, name, folder / "leak"))
        time.sleep(1.5)
        whole = folder / "whole.kvtide"
        AgentClient(agent.url, timeout=60.0).save_recording(30.0, whole)
    states = list(read(whole).states())
    for chapter in chapters:
        write(path_of(part, chapter.name), chapter, states)
    return chapters


def _ready(engine: EngineServer, agent: AgentProcess) -> None:
    engine.wait_ready(START_SECONDS)
    agent.wait_live(30.0)


def _over(name: str, began: float, label: Label | None = None) -> Chapter:
    return Chapter(name, began, time.monotonic(), label)


def _load(engine: EngineServer, rng: Random, seconds: float, tenants: tuple[Tenant, ...], concurrency: int) -> None:
    asyncio.run(run_load(engine.url, _plan(rng, seconds, tenants, concurrency)))


def _plan(rng: Random, seconds: float, tenants: tuple[Tenant, ...], concurrency: int) -> LoadPlan:
    return LoadPlan(
        requests=20_000, seconds=seconds, concurrency=concurrency, tenants=tenants, seed=rng.getrandbits(31)
    )


def _shared_prefixes(engine: EngineServer, rng: Random) -> Chapter:
    """Long beginnings in common: the same blocks have many holders, and stay cached behind them."""
    began = time.monotonic()
    tenants = tuple(
        Tenant(name, prompt=(500, 700), output=(10, 60), prefix=rng.choice((256, 384, 480)))
        for name in ("acme", "zeta")
    )
    _load(engine, rng, 25, tenants, 6)
    return _over("shared prefixes", began)


def _abort_storm(engine: EngineServer, rng: Random) -> Chapter:
    """Nearly every client goes away in the middle of its answer."""
    began = time.monotonic()
    tenants = (Tenant("hasty", prompt=(100, 900), output=(100, 300), abort_ratio=rng.uniform(0.85, 0.95)),)
    _load(engine, rng, 25, tenants, 8)
    return _over("abort storm", began)


def _small_pool(engine: EngineServer, rng: Random, name: str) -> Chapter:
    """Three times as much as the pool can hold: requests wait for its memory and are put back."""
    began = time.monotonic()
    tenants = (Tenant("umbrella", prompt=(500, 1000), output=(300, 700)),)
    _load(engine, rng, 130, tenants, rng.randint(9, 12))
    label = Label(kind="kv_pressure", onset=began, subject=Subject(scope="engine", engine=name))
    return _over("small pool", began, label)


def _leak(engine: EngineServer, rng: Random, name: str, leaks: Path) -> Chapter:
    began = time.monotonic()
    least = rng.randint(1, 6)

    async def both() -> None:
        async def plant() -> None:
            await asyncio.sleep(8)
            arm(leaks, least, least + 8)

        async with asyncio.TaskGroup() as group:
            group.create_task(run_load(engine.url, _plan(rng, 30, OTHERS, 4)))
            group.create_task(plant())

    asyncio.run(both())
    onset = wait_planted(leaks, 5.0).armed_monotonic
    return _over(
        "leak under load", began, Label(kind="kv_orphan", onset=onset, subject=Subject(scope="engine", engine=name))
    )


def write(path: Path, chapter: Chapter, states: list[AgentState]) -> None:
    """Write a chapter's bundle: those of ``states`` that lie in it."""
    CACHE.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".part")
    labels = (chapter.label,) if chapter.label else ()
    header = Header(why="played", host="bed", created_at=time.time(), labelled=True, labels=labels)
    with Writer(draft, header) as writer:
        for state in states:
            if chapter.began <= state.monotonic <= chapter.ended:
                writer.state(state)
    draft.replace(path)


def main() -> int:
    """Play one part; print what came of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.corpus.play", description="Record a real engine.")
    parser.add_argument("part", choices=("tuning", "evaluation"))
    part: Part = parser.parse_args().part
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        for chapter in play(part, Path(name)):
            path = path_of(part, chapter.name)
            number = sum(1 for _ in read(path).states())
            print(f"{chapter.name}: {chapter.ended - chapter.began:.0f} s, {number} states, {path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
