"""What is said of alerts that fire, do not fire, fire too much, and that nobody can be asked about."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from kvtide_chaos import AlertError, AlertWatch

from agent.policy.types import DEFAULT
from alerts import conditions
from alerts.rule import Alert
from tests.bed import net


def alert(name: str, state: str = "firing", **labels: str) -> dict[str, Any]:
    return {"labels": {"alertname": name, **labels}, "annotations": {"summary": f"{name}!"}, "state": state}


class Answers(ThreadingHTTPServer):
    """Answers each question with the next of ``turns``, the last one again and again."""

    turns: list[list[dict[str, Any]]]
    asked: list[str]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Answers)
        turn = server.turns[min(len(server.asked), len(server.turns) - 1)]
        server.asked.append(self.path)
        body = json.dumps({"data": {"alerts": turn}} if "/v1/" in self.path else turn).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    monkeypatch.setattr("kvtide_chaos.alerts.POLL_SECONDS", 0.01)
    server = Answers(("127.0.0.1", 0), _Handler)
    server.turns, server.asked = [[]], []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def watch(server: Answers, of: str = "prometheus") -> AlertWatch:
    return AlertWatch(**{of: f"http://127.0.0.1:{server.server_port}/"})


@pytest.mark.parametrize("of", ["prometheus", "alertmanager"])
def test_it_waits_until_the_alert_fires(server: Answers, of: str) -> None:
    server.turns = [[], [], [alert("Leak", gpu="0"), alert("Other")]]
    fired = watch(server, of).expect("Leak", within="30s", labels={"gpu": "0"})
    assert (fired.name, fired.annotations["summary"]) == ("Leak", "Leak!")
    assert len(server.asked) == 3


def test_a_pending_alert_does_not_fire(server: Answers) -> None:
    server.turns = [[alert("Leak", "pending"), alert("Other")]]
    with pytest.raises(AlertError, match=r"Leak did not fire within 0\.1 s; what fired: Other"):
        watch(server).expect("Leak", within="100ms")


def test_another_gpus_alert_is_not_it(server: Answers) -> None:
    server.turns = [[alert("Leak", gpu="1")]]
    with pytest.raises(AlertError, match="what fired: Leak"):
        watch(server).expect("Leak", within="50ms", labels={"gpu": "0"})


def test_quiet(server: Answers) -> None:
    watch(server).expect_quiet("Leak", lasting="50ms")
    server.turns, server.asked = [[], [alert("Leak")]], []
    with pytest.raises(AlertError, match="Leak fired"):
        watch(server).expect_quiet("Leak", lasting="30s")


def test_nobody_to_ask_is_neither() -> None:
    nobody = AlertWatch(prometheus=f"http://127.0.0.1:{net.free_port()}")
    with pytest.raises(AlertError, match="not known to have fired"):
        nobody.expect("Leak", within="50ms")
    with pytest.raises(AlertError, match="not known to be quiet"):
        nobody.expect_quiet("Leak", lasting="50ms")


def test_one_address_is_wanted() -> None:
    for given in ({}, {"prometheus": "http://a", "alertmanager": "http://b"}):
        with pytest.raises(ValueError, match="name one"):
            AlertWatch(**given)


def test_what_the_page_waits_for_are_alerts_of_kvtides() -> None:
    text = (Path(__file__).parents[3] / "chaos" / "README.md").read_text()
    groups = conditions.groups(DEFAULT)
    alerts = {rule.name: rule for group in groups for rule in group.rules if isinstance(rule, Alert)}
    assert {*re.findall(r"expect(?:\(\"| )(Kvtide\w+)", text)} <= alerts.keys()
    ((name, severity),) = re.findall(r'expect\("(\w+)".*?labels\["severity"\] == "(\w+)"', text, re.DOTALL)
    assert alerts[name].severity == severity
