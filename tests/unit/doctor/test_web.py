"""What ``kvtide doctor`` says of the agent's port."""

from __future__ import annotations

import pytest

from agent.doctor.web import findings
from tests.unit.builders import make_http, make_state


@pytest.mark.parametrize(
    ("changes", "level", "says"),
    [
        ({}, "ok", "127.0.0.1:9477 is this host alone"),
        ({"loopback": False}, "warn", "whoever reaches it can read all that the agent knows"),
        ({"loopback": False, "tls": True}, "warn", "whoever reaches it can read all that the agent knows"),
        ({"loopback": False, "known": True}, "warn", "passwords cross the network in clear"),
        ({"loopback": False, "known": True, "tls": True}, "ok", "TLS, and it asks who it is"),
        ({"problem": "web.yaml: gone"}, "bad", "what was before stays in force: web.yaml: gone"),
    ],
)
def test_the_port(changes: dict[str, object], level: str, says: str) -> None:
    (found,) = findings(make_state(http=make_http(**changes)))
    assert found.level == level
    assert says in found.text
    assert bool(found.mend) == (level != "ok")


def test_guesses_are_told_and_an_older_agent_tells_nothing() -> None:
    *_, found = findings(make_state(http=make_http(refused={"busy": 3})))
    assert "3 requests were refused after many wrong passwords" in found.text
    assert not list(findings(make_state(http=None)))
