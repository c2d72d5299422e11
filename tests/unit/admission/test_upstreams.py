"""Where requests are sent on to, and what the middleware makes of it. The sending itself runs in the engine's tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine_hooks.frontend.admission.upstreams import VARIABLE, Upstreams, read_upstreams
from tests.unit.admission.asking import Bed, completion, run

LADDER: dict[str, Any] = {
    "by_tokens": [
        {"name": "rest", "url": "http://long:8000"},
        {"name": "here", "below": 2048},
        {"name": "middle", "url": "http://middle:8000", "below": 8192},
    ],
    "by_pressure": [
        {"name": "int8", "url": "http://int8:8000", "at": 85},
        {"name": "lite", "url": "https://lite:8000/base", "at": 95, "model": "tiny-lite"},
        {"name": "int4", "url": "http://int4:8000", "at": 90},
    ],
}


@pytest.fixture
def ladder(tmp_path: Path) -> Upstreams:
    path = tmp_path / "upstreams.json"
    path.write_text(json.dumps(LADDER))
    return Upstreams.from_environment({VARIABLE: str(path)})


@pytest.mark.parametrize(
    ("tokens", "pressure", "name"),
    [
        (2047, None, None),
        (2048, None, "middle"),
        (8191, 84.9, "middle"),
        (8192, None, "rest"),
        (10, 85, "int8"),
        (10, 90, "int4"),
        (10**6, 99, "lite"),
    ],
)
def test_length_and_pressure_choose(ladder: Upstreams, tokens: int, pressure: float | None, name: str | None) -> None:
    found = ladder.choose([], tokens, pressure)
    assert (found.name if found else None) == name


def test_what_was_sent_on_once_is_served_here(ladder: Upstreams) -> None:
    assert ladder.choose([(b"x-kvtide-via", b"1")], 10**6, 99) is None


def test_nothing_is_sent_on_unless_configured() -> None:
    assert Upstreams.from_environment({}).choose([], 10**6, 100.0) is None


@pytest.mark.parametrize(
    "file",
    [
        "{",
        "[]",
        '{"by_token": []}',
        '{"by_tokens": [{"url": "http://x"}]}',
        '{"by_tokens": [{"name": "a\\r\\nb", "url": "http://x"}]}',
        '{"by_tokens": [{"name": "a", "url": "file:///etc/passwd"}]}',
        '{"by_tokens": [{"name": "a", "url": "http://"}]}',
        '{"by_tokens": [{"name": "a", "url": "http://x/?a=1"}]}',
        '{"by_pressure": [{"name": "a", "url": "http://x"}]}',
        '{"by_pressure": [{"name": "a", "url": "http://x", "at": 101}]}',
        " " * 70_000,
    ],
)
def test_a_bad_file_is_told_and_nothing_is_sent_on(tmp_path: Path, caplog: pytest.LogCaptureFixture, file: str) -> None:
    path = tmp_path / "upstreams.json"
    path.write_text(file)
    with pytest.raises(ValueError, match=r"upstreams\.json"):
        read_upstreams(path)
    assert Upstreams.from_environment({VARIABLE: str(path)}) == Upstreams()
    assert VARIABLE in caplog.text
    assert Upstreams.from_environment({VARIABLE: str(tmp_path / "none")}) == Upstreams()


# -- through the middleware ----------------------------------------------------------------------------------------


class Sender:
    """In the place of the connection to another server."""

    def __init__(self, outcome: bool | Exception) -> None:
        self.outcome = outcome
        self.asked: list[tuple[str, bytes]] = []

    async def __call__(self, upstream: Any, passage: Any, send: Any) -> bool:
        self.asked.append((upstream.name, passage.read))
        if isinstance(self.outcome, Exception):
            raise self.outcome
        if self.outcome:
            await send({"type": "http.response.start", "status": 201, "headers": [(b"x-kvtide-decision", b"sent on")]})
            await send({"type": "http.response.body", "body": b"there", "more_body": False})
        return self.outcome


def test_a_request_that_is_sent_on_takes_nothing_here(ladder: Upstreams) -> None:
    sender = Sender(True)
    bed = Bed(ladder, send_on=sender)
    bed.order(pressure=95, default_quota=0)
    answer = run(lambda: bed.post(completion(10)))
    assert (answer.status, answer.headers) == (201, {"x-kvtide-decision": "sent on"})
    assert [name for name, _ in sender.asked] == ["lite"]
    assert bed.app.scopes == []
    assert bed.gate._breaker.inside == 0
    via = run(lambda: bed.post(completion(10), headers=((b"x-kvtide-via", b"1"),)))
    assert via.status == 429  # it has come round: the rules of this server are for it


@pytest.mark.parametrize("outcome", [False, RuntimeError("planted")])
def test_an_upstream_that_can_not_be_reached_leaves_the_request_here(
    ladder: Upstreams, outcome: bool | Exception
) -> None:
    bed = Bed(ladder, send_on=Sender(outcome))
    bed.order(pressure=95)
    answer = run(lambda: bed.post(completion(10)))
    assert (answer.status, answer.headers["x-kvtide-decision"]) == (200, "admitted; upstream_failed")
    assert bed.app.bodies == [json.dumps(completion(10)).encode()]


def test_without_rules_in_force_nothing_is_sent_on(ladder: Upstreams) -> None:
    sender = Sender(True)
    bed = Bed(ladder, send_on=sender)
    assert run(lambda: bed.post(completion(1000))).status == 200
    assert sender.asked == []
    bed.order()
    assert run(lambda: bed.post(completion(10))).status == 200  # short ones are served here
    assert sender.asked == []
