"""Who an engine says that it is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine_hooks import __version__, identity
from engine_hooks.auth import Session
from engine_hooks.identity import Identity
from engine_hooks.settings import Settings
from engine_hooks.wire import PoolInfo, Support, decode, encode

SESSION = Session(b"k" * 32, b"a" * 32, b"e" * 32)


def engine(served: object = "org/chat", model: str = "/m/base", **parallel: object) -> SimpleNamespace:
    config = SimpleNamespace(
        model_config=SimpleNamespace(served_model_name=served, model=model), parallel_config=SimpleNamespace(**parallel)
    )
    return SimpleNamespace(vllm_config=config)


def name_of(core: object, **env: str) -> str:
    return Identity.of(core, Settings.from_environment(env), in_process=False).name


@pytest.mark.parametrize(
    ("core", "name"),
    [
        (engine("org/chat"), "chat"),
        (engine(["first", "second"]), "first"),
        (engine([]), "base"),
        (engine(None), "base"),
        (engine('we"ird [b]\nname\\'), "we_ird__b__name_"),
        (engine("x" * 300), "x" * 64),
        (engine("größe"), "gr__e"),
        (engine("/"), "engine"),
        (SimpleNamespace(), "engine"),
    ],
)
def test_the_name_is_the_served_models_and_fit_for_a_label(core: object, name: str) -> None:
    assert name_of(core) == name


def test_the_environment_can_name_the_engine() -> None:
    assert name_of(engine(), KVTIDE_ENGINE_NAME="team a") == "team_a"


def test_the_hello_says_who_and_proves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(identity.ENGINE_ID_VARIABLE, "shared")
    core = engine(data_parallel_index=3, rank=5, data_parallel_size=4)
    found = Identity.of(core, Settings.from_environment({}), in_process=True)
    pool = PoolInfo(capacity=10, block_tokens=16, block_bytes=None)
    hello = found.hello(SESSION, pool, Support(ok=False, reason="why"), 1.5)
    assert decode(encode(hello)) == hello
    assert (hello.name, hello.engine_id) == ("chat", "shared")
    assert (hello.index, hello.rank, hello.data_parallel_size) == (3, 5, 4)
    assert (hello.pid, hello.hooks_version, hello.in_process) == (os.getpid(), __version__, True)
    assert (hello.idle_period_seconds, hello.pool, hello.audit) == (1.5, pool, Support(ok=False, reason="why"))
    assert hello.mac == SESSION.engine_proof()


@pytest.mark.parametrize(
    ("title", "index", "ranked"),
    [
        ("VLLM::EngineCore", 0, False),
        ("VLLM::EngineCore_DP0", 0, True),  # vLLM tells a dense model's rank that it is alone
        ("VLLM::EngineCore", 1, True),
        ("python -c pass", 0, False),
    ],
)
def test_a_data_parallel_rank_is_known_by_its_index_or_its_title(
    title: str, index: int, ranked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cmdline").write_text(title)
    monkeypatch.setattr(identity, "_COMMAND_LINE", tmp_path / "cmdline")
    core = engine(data_parallel_index=index, data_parallel_size=1)
    assert Identity.of(core, Settings.from_environment({}), in_process=False).data_parallel is ranked


def test_each_process_draws_its_own_instance() -> None:
    first, second = (Identity.of(engine(), Settings.from_environment({}), in_process=False) for _ in range(2))
    assert first.instance != second.instance
    assert re.fullmatch(r"[0-9a-f]{16}", first.instance)


def test_the_engine_id_is_drawn_once_and_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(identity.ENGINE_ID_VARIABLE, "parent")
    identity.share_engine_id()
    assert os.environ[identity.ENGINE_ID_VARIABLE] == "parent"
    monkeypatch.delenv(identity.ENGINE_ID_VARIABLE)
    identity.share_engine_id()
    assert re.fullmatch(r"[0-9a-f]{16}", os.environ[identity.ENGINE_ID_VARIABLE])
