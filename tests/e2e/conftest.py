"""Shared set-up: short folders for sockets, one agent and one real vLLM server for the whole run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kvtide_chaos.kv_blocks import leak_env

from tests.bed.agent import AgentProcess
from tests.bed.engine import EngineServer

TIMEOUT_SECONDS = 1200.0  # of a test without a mark: servers start in it, on a machine with much else to do
# Who calls here is believed, and is told as a hash: test_hashed_tenants.
HASHED = {
    "KVTIDE_TENANT_FROM": "header:X-Tenant,user",
    "KVTIDE_TRUSTED_PROXIES": "127.0.0.0/8",
    "KVTIDE_HASH_TENANTS": "1",
}
BLOCKS = 300  # a small pool: 299 usable blocks of 32 tokens, so that a load preempts


@dataclass(slots=True)
class Rig:
    """A running agent and a running engine, shared by all tests.

    A test that ends the agent puts back a new one; one that leaks leaves orphans, so tests compare with what they find.
    """

    folder: Path
    agent: AgentProcess
    engine: EngineServer

    @property
    def leaks(self) -> Path:
        return self.folder / "leak"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here the time that a busy machine needs; those of other folders have what they have."""
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for a Unix socket, whatever the test is called."""
    path = Path(tempfile.mkdtemp(prefix="kvtide-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def rig(standing: Rig) -> Rig:
    """An agent, and an engine that has found it: again, where the test before has put a new agent there."""
    standing.agent.wait_live()
    return standing


@pytest.fixture(scope="session")
def standing(folder: Path) -> Iterator[Rig]:
    """The same for the whole run, as the last test has left it."""
    agent = AgentProcess(folder)
    # The agent observes; only what a test orders as a person is done.
    env = {**agent.engine_env(), **leak_env(folder / "leak"), **HASHED, "KVTIDE_LEVERS": "reclaim_orphans"}
    with EngineServer(folder / "engine.log", num_blocks=BLOCKS, env=env) as engine:
        rig = Rig(folder, agent, engine)
        try:
            engine.wait_ready()
            agent.wait_live()
            yield rig
        finally:
            rig.agent.stop()
