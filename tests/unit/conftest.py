"""What several files of unit tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from engine_hooks.link import AgentLink
from tests.bed.fake_torch import FakeTorch
from tests.unit.support import Listener, Recorder, eventually, settings_for, write_key

hypothesis.settings.register_profile("kvtide", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("kvtide")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KVTIDE_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    path = tmp_path / "s"
    assert len(str(path)) < 100, "tests need a shorter --basetemp: a Unix socket's path has 107 bytes at most"
    return path


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_key(tmp_path / "k")


@pytest.fixture
def listener(socket_path: Path) -> Iterator[Listener]:
    found = Listener(socket_path)
    yield found
    found.close()


StartLink = Callable[..., AgentLink]


@pytest.fixture
def start_link(socket_path: Path, key_file: Path) -> Iterator[StartLink]:
    """Start an engine's link to ``socket_path``; all are closed, and their threads ended, after the test."""
    started: list[AgentLink] = []

    def start(recorder: Recorder, *uids: int, key: Path = key_file) -> AgentLink:
        link = AgentLink(settings_for(socket_path, key, *uids), recorder.callbacks)
        started.append(link)
        link.start()
        return link

    yield start
    for link in started:
        link.close()
    for link in started:
        eventually(lambda link=link: not link._thread.is_alive())


@pytest.fixture
def table() -> EngineTable:
    return EngineTable(3.0)


@pytest.fixture
def link_config(socket_path: Path, key_file: Path) -> LinkConfig:
    return LinkConfig(socket=socket_path, key_file=key_file)


@pytest.fixture
async def server(link_config: LinkConfig, table: EngineTable) -> Iterator[LinkServer]:
    """A LinkServer that serves on the test's own event loop."""
    found = LinkServer(link_config, table)
    found.start()
    yield found
    found.close()


@pytest.fixture
def put(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Put a made-up torch in the place of the real one."""

    def put(torch: FakeTorch) -> FakeTorch:
        monkeypatch.setitem(sys.modules, "torch", torch)
        return torch

    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    return put
