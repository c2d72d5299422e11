"""The supervisor's settings: what is lacking is told at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import load
from agent.errors import ConfigError
from agent.supervisor.wiring import supervisors_of


def written(tmp_path: Path, *engines: str, more: str = "") -> Path:
    file = tmp_path / "agent.yaml"
    lines = "".join(f"    - {each}\n" for each in engines)
    file.write_text(f"supervisor:\n  engines:\n{lines}{more}")
    return file


def test_each_engine_has_the_one_that_is_named(tmp_path: Path) -> None:
    more = (
        "  webhook: {url: 'http://127.0.0.1:9/'}\nbalancer: {kubernetes: {url: 'http://127.0.0.1:9', namespace: llm}}\n"
    )
    file = written(
        tmp_path,
        "{name: a, by: systemd, unit: vllm@1.service}",
        "{name: b, by: command, command: [/usr/bin/true, -x]}",
        "{name: c, by: webhook}",
        "{name: d, by: kubernetes}",
        more=more,
    )
    config = load(file, {})
    made = supervisors_of(config.supervisor, config.balancer.kubernetes)
    assert {name: each.name for name, each in made.items()} == {
        "a": "systemd",
        "b": "command",
        "c": "webhook",
        "d": "kubernetes",
    }


@pytest.mark.parametrize(
    ("engines", "why"),
    [
        (("{name: a, by: systemd}",), "systemd needs `unit`"),
        (("{name: a, by: systemd, unit: '--force'}",), "unit"),
        (("{name: a, by: command}",), "command needs `command`"),
        (("{name: a, by: command, command: [restart]}",), "begins with a full path"),
        (("{name: a, by: webhook}",), "supervisor.webhook.url"),
        (("{name: a, by: kubernetes}", "{name: a, by: kubernetes}"), "the engine a is there twice"),
    ],
)
def test_what_is_lacking_is_told(tmp_path: Path, engines: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load(written(tmp_path, *engines), {})


def test_kubernetes_outside_of_it_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    config = load(written(tmp_path, "{name: a, by: kubernetes}"), {})
    with pytest.raises(ConfigError, match="name the API server"):
        supervisors_of(config.supervisor, config.balancer.kubernetes)
