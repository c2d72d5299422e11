"""The settings of the balancer, and what is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.balancer.balancer import Balancer
from agent.balancer.config import BalancerConfig
from agent.balancer.wiring import balancer_of
from agent.config import load
from agent.errors import ConfigError
from agent.policy.types import DEFAULT
from tests.unit.balancer.made import Written


def made(config: BalancerConfig) -> Balancer:
    return balancer_of(config, DEFAULT, stops=lambda _engine: None, moves=Written(), marked=lambda _engine: None)


def loaded(tmp_path: Path, text: str) -> BalancerConfig:
    file = tmp_path / "agent.yaml"
    file.write_text(f"balancer:\n{text}")
    return load(file, {}).balancer


def test_nothing_is_on_by_default() -> None:
    config = BalancerConfig()
    assert (config.mode, config.listen, config.engines, config.coordinator) == ("observe", None, (), "none")
    assert not config.kubernetes.readiness_gate


def test_addresses(tmp_path: Path) -> None:
    config = loaded(tmp_path, "  listen: '[::1]:9478'\n  engines: [{name: org/m, listen: '127.0.0.1:9479'}]")
    assert (config.shared, config.own) == (("::1", 9478), {"org/m": ("127.0.0.1", 9479)})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("  mode: on", "balancer.mode"),
        ("  listen: 8000", "balancer.listen: 8000"),
        ("  listen: host:80", "balancer.listen: 'host:80'"),
        ("  share: 0.6", "balancer.share: 0.6"),
        ("  coordinator: file", "the coordinator file needs balancer.lease_directory"),
        ("  coordinator: webhook", "the coordinator webhook needs balancer.webhook.url"),
        ("  webhook: {url: 'http://u:p@h/'}", "without a password"),
        ("  webhook: {url: 'file:///x'}", "balancer.webhook.url"),
        ("  kubernetes: {lease: 'a/b'}", "balancer.kubernetes.lease"),
        ("  marks_file: marks.yaml", "must be an absolute path"),
        (
            "  engines: [{name: m, listen: '127.0.0.1:1'}, {name: m, listen: '127.0.0.1:2'}]",
            "the engine m is there twice",
        ),
        ("  weight: 3", "unknown key balancer.weight"),
    ],
)
def test_a_mistake_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        loaded(tmp_path, text)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("changes", "coordinator"),
    [
        ({}, "none"),
        ({"coordinator": "file", "lease_directory": "/tmp"}, "file"),  # noqa: S108
        ({"coordinator": "webhook", "webhook": {"url": "http://127.0.0.1:9/"}}, "webhook"),
        ({"coordinator": "kubernetes", "kubernetes": {"url": "http://127.0.0.1:9", "namespace": "llm"}}, "kubernetes"),
    ],
)
def test_the_coordinator_is_the_one_that_is_asked_for(changes: dict[str, Any], coordinator: str) -> None:
    for mode, name in (("enforce", coordinator), ("dry-run", "none"), ("observe", "none")):
        config = BalancerConfig.model_validate({"mode": mode} | changes)
        assert made(config).state.coordinator == name


def test_kubernetes_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"mode": "enforce", "coordinator": "kubernetes"}
    account = {"kubernetes": {"account": str(tmp_path)}}
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="this is no pod"):
        made(BalancerConfig.model_validate(asked | account))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    with pytest.raises(ConfigError, match="namespace: "):
        made(BalancerConfig.model_validate(asked | account))
    (tmp_path / "namespace").write_text("llm\n")
    made(BalancerConfig.model_validate(asked | account))
