"""The dependency audit finds what it is for, and never calls clean what it could not look at."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from deploy import audit


class Package:
    """As much of a distribution as is looked at."""

    def __init__(self, version: str, *requires: str, licence: str = "MIT") -> None:
        self.version, self.requires = version, list(requires)
        self.metadata = Message()
        self.metadata["License-Expression"] = licence


WELL: dict[str, Any] = {
    "kvtide": Package("0.1.0", "alpha; extra == 'agent'"),
    "alpha": Package("1.0", "beta>=2"),
    "beta": Package("2.1"),
    "tool": Package("3", licence="GPL-3.0"),
}
PINS = {"alpha": "1.0", "beta": "2.1", "tool": "3.0"}


def found(**changes: Any) -> list[str]:
    installed = {name: package for name, package in {**WELL, **changes}.items() if package is not None}
    return list(audit.faults(installed, PINS, audit.shipped(installed, ("agent",))))


def test_what_is_well_has_no_fault() -> None:
    assert found() == []
    assert audit.shipped(WELL, ("agent",)) == {"alpha", "beta"}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"beta": Package("2.2")}, "beta: 2.2 is installed, 2.1 is pinned"),
        ({"gamma": Package("1")}, "gamma 1: not pinned in agent.txt"),
        ({"beta": None}, "alpha: needs beta, which is not installed"),
        ({"alpha": Package("1.0", "beta>=3")}, "alpha: needs beta>=3, 2.1 is installed"),
        ({"beta": Package("2.1", licence="AGPL-3.0-only")}, "beta: its licence is not one of those that are allowed"),
        ({"beta": Package("2.1", licence="")}, "it says none"),
    ],
)
def test_each_fault_is_a_line(changes: dict[str, Any], says: str) -> None:
    (line,) = found(**changes)
    assert says in line


@pytest.fixture
def service() -> Iterator[tuple[str, list[bytes]]]:
    """An advisory service that answers with what it is given."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answers[0])

        def log_message(self, *_words: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_known_vulnerabilities_are_told_and_no_answer_is_not_clean(service: tuple[str, list[bytes]]) -> None:
    address, answers = service
    answers.append(json.dumps({"results": [{"vulns": [{"id": "GHSA-1"}]}, {}, {}]}).encode())
    assert audit.advisories(WELL, address) == ["alpha 1.0: GHSA-1"]
    answers[0] = json.dumps({"results": [{}, {}, {}]}).encode()
    assert audit.advisories(WELL, address) == []
    for broken in (b"", b"<html>", b"{}", b'{"results": [{}]}', b'{"results": 5}'):
        answers[0] = broken
        assert audit.advisories(WELL, address) is None
    assert audit.advisories(WELL, "http://127.0.0.1:9/") is None


def test_the_last_line_says_not_checked(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(audit, "advisories", lambda _installed: None)
    audit.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert "known vulnerabilities: not checked: the advisory service does not answer" in last
    assert "clean" not in last
