"""A busy machine is no failure: what has to answer in seconds gets half a minute here."""

from __future__ import annotations

import pytest

from agent.balancer import gate, grants, http_client, lease_file, word

PATIENCE_SECONDS = 30.0


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (gate, "TIMEOUT_SECONDS"),
        (grants, "TIMEOUT_SECONDS"),
        (grants, "CLOSE_SECONDS"),
        (http_client, "CALL_SECONDS"),
        (lease_file, "TIMEOUT_SECONDS"),
        (word, "TIMEOUT_SECONDS"),
    ):
        monkeypatch.setattr(module, name, PATIENCE_SECONDS)
