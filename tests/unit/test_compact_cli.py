"""``kvtide compact``: what it sends, what it says of the answer and of the end, and what it refuses to send."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.cli import control
from agent.cli.app import run
from agent.cli.compact import arguments_of, bytes_of, plain_text
from agent.errors import ConfigError
from tests.unit.builders import make_engine, make_state
from tests.unit.details import make_compaction, make_detail

ANSWER: dict[str, Any] = {
    "id": "a1",
    "phase": "in_force",
    "reason": "",
    "outcomes": [
        {
            "target": "i1",
            "code": "done",
            "detail": "relocated, nothing released: here",
            "effect": {
                "before_blocks": 1000,
                "after_blocks": 400,
                "move_blocks": 203,
                "workers": 2,
                "offline_blocks": 600,
                "moved_blocks_total": 3,
                "dropped_blocks_total": 1,
                "orders_total": 1,
            },
        }
    ],
}


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("512MiB", 512 << 20), ("1.5GiB", 3 << 29), ("2 TiB", 2 << 40), ("7kib", 7 << 10)],
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "0", "-3", "much", "3GB", "1e400", "nan", "3 MiB x", "1e30", "5000000TiB"])
def test_what_is_no_size_says_so(text: str) -> None:
    with pytest.raises(ConfigError, match="--free"):
        bytes_of(text)


@pytest.mark.parametrize(
    ("phase", "reason", "head"),
    [
        ("refused", "not_allowed: not listed", "action a1: refused: not_allowed: not listed"),
        ("would", "not listed", "action a1: nothing was done; it would, but not listed:"),
        ("in_force", "", "action a1: in force"),
    ],
)
def test_a_reason_is_told_once(phase: str, reason: str, head: str) -> None:
    answer = {"id": "a1", "phase": phase, "reason": reason, "outcomes": [{"detail": "not listed" if reason else ""}]}
    assert plain_text(answer) == head


def test_one_of_both() -> None:
    assert arguments_of(400, None) == {"to_blocks": 400}
    assert arguments_of(None, "1KiB") == {"free_bytes": 1024}
    for both in ((None, None), (1, "1")):
        with pytest.raises(ConfigError, match="one of"):
            arguments_of(*both)
    with pytest.raises(ConfigError, match=r"^--to: 10+: must be 1099511627776 at most$"):
        arguments_of(10**30, None)


class Agent:
    """Answers an order with ``phase``, and is in one state. ``sent``: what was posted."""

    def __init__(self, phase: str = "in_force", **row: Any) -> None:
        self.phase, self.sent = phase, list[tuple[str, Any]]()
        detail = make_detail(compaction=make_compaction(orders_total=1, **row))
        self.state = make_state(make_engine(instance="i1", detail=detail))

    def __call__(self, socket: Path) -> Agent:
        assert socket == Path("/x/agent.sock")
        return self

    def post(self, path: str, body: Any) -> Any:
        self.sent.append((path, body))
        return ANSWER | {"phase": self.phase}

    def get(self, path: str) -> bytes:
        assert path == "/api/v1/state"
        return msgspec.json.encode(self.state)


def ran(monkeypatch: pytest.MonkeyPatch, agent: Agent, *more: str) -> int:
    monkeypatch.setattr(control, "ControlClient", agent)
    return run(["compact", "llama", "--to", "400", "--socket", "/x/agent.sock", *more])


@pytest.mark.parametrize(
    ("phase", "code", "told"),
    [("would", 0, "nothing was done; it would:"), ("refused", 1, "refused"), ("failed", 1, "failed")],
)
def test_the_order_and_the_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], phase: str, code: int, told: str
) -> None:
    agent = Agent(phase)
    assert ran(monkeypatch, agent, "--dry-run", "--why", "room") == code
    body = {
        "lever": "compact",
        "engine": "llama",
        "arguments": {"to_blocks": 400},
        "minutes": None,
        "attempt": True,
        "why": "room",
    }
    assert agent.sent == [("/api/v1/orders", body)]
    said = capsys.readouterr().out
    assert f"action a1: {told}\n" in said
    assert "nothing released" in said
    assert "203 held blocks to be moved" in said
    assert "after" not in said, "nothing was waited for"


def test_it_tells_how_it_ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(monkeypatch, Agent(state="shrunk", offline=600)) == 0
    said = capsys.readouterr().out
    assert said.index("held blocks to be moved") < said.index("the pool is as it was asked for after ")
    assert "253 blocks moved" in said  # of 203 and 53, three before this order
    assert "30 cached blocks lost" in said
    assert "600 blocks offline, of 600 that were to go" in said
    assert "29,491,200 bytes given back" in said


def test_one_that_stopped_halfway_says_so_and_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent(state="stopped", offline=20, reason="pressure: a request was refused memory", released_bytes=None)
    assert ran(monkeypatch, agent) == 1
    said = capsys.readouterr().out
    assert re.search(r"it stopped halfway after [\d.]+ s: pressure: a request was refused memory", said)
    assert "20 blocks offline, of 600 that were to go" in said
    assert "bytes given back, on all" not in said, "what is not known is no zero"


def test_json_has_the_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ran(monkeypatch, Agent(state="moving", offline=20), "--json", "--seconds", "0") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["id"] == "a1"
    assert (told["end"]["state"], told["end"]["offline_blocks"], told["end"]["wanted_blocks"]) == (
        "unfinished",
        20,
        600,
    )


def test_without_waiting_it_ends_with_the_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran(monkeypatch, Agent(state="moving", offline=20), "--json", "--no-wait") == 0
    assert "end" not in json.loads(capsys.readouterr().out)
