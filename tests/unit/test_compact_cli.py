"""``kvtide compact``: what it sends, what it says, and what it refuses to send."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.cli import control
from agent.cli.app import run
from agent.cli.compact import arguments_of, bytes_of
from agent.errors import ConfigError

ANSWER: dict[str, Any] = {
    "id": "a1",
    "phase": "in_force",
    "reason": "",
    "outcomes": [
        {"code": "done", "detail": "relocated, nothing released: here", "effect": {"move_blocks": 203, "workers": 2}}
    ],
}


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("512MiB", 512 << 20), ("1.5GiB", 3 << 29), ("2 TiB", 2 << 40), ("7kib", 7 << 10)],
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "0", "-3", "much", "3GB", "1e400", "nan", "3 MiB x"])
def test_what_is_no_size_says_so(text: str) -> None:
    with pytest.raises(ConfigError, match="--free"):
        bytes_of(text)


def test_one_of_both() -> None:
    assert arguments_of(400, None) == {"to_blocks": 400}
    assert arguments_of(None, "1KiB") == {"free_bytes": 1024}
    for both in ((None, None), (1, "1")):
        with pytest.raises(ConfigError, match="one of"):
            arguments_of(*both)


@pytest.mark.parametrize(("phase", "code"), [("in_force", 0), ("refused", 1), ("failed", 1)])
def test_the_order_and_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], phase: str, code: int
) -> None:
    sent: list[tuple[str, Any]] = []

    class Client:
        def __init__(self, socket: Path) -> None:
            assert socket == Path("/x/agent.sock")

        def post(self, path: str, body: Any) -> Any:
            sent.append((path, body))
            return ANSWER | {"phase": phase}

    monkeypatch.setattr(control, "ControlClient", Client)
    assert run(["compact", "llama", "--to", "400", "--dry-run", "--why", "room", "--socket", "/x/agent.sock"]) == code
    body = {
        "lever": "compact",
        "engine": "llama",
        "arguments": {"to_blocks": 400},
        "minutes": None,
        "attempt": True,
        "why": "room",
    }
    assert sent == [("/api/v1/orders", body)]
    said = capsys.readouterr().out
    assert f"action a1: {phase}" in said
    assert "nothing released" in said
    assert "203 held blocks to be moved" in said
