"""What the engine's environment says, and that a bad value never stops an engine."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.settings import Settings

OURS = frozenset({0, os.geteuid()})


def read(**env: str) -> Settings:
    return Settings.from_environment({f"KVTIDE_{name}": value for name, value in env.items()})


def test_defaults() -> None:
    assert Settings.from_environment({}) == Settings(
        enabled=True,
        socket=Path("/run/kvtide/agent.sock"),
        key_file=Path("/run/kvtide/agent.key"),
        agent_uids=OURS,
        engine_name=None,
        pin_seconds=600.0,
        plain_request_ids=False,
        tenants=TenantSettings(),
    )


def test_every_variable() -> None:
    assert read(
        DISABLE="1",
        SOCKET="/s/a",
        KEY_FILE="/k/b",
        AGENT_UIDS="root, 1234 ,5",
        ENGINE_NAME=" chat ",
        PIN_SECONDS="2.5",
        PLAIN_IDS="1",
        TENANT_FROM="user",
    ) == Settings(
        enabled=False,
        socket=Path("/s/a"),
        key_file=Path("/k/b"),
        agent_uids=frozenset({0, 1234, 5}),
        engine_name="chat",
        pin_seconds=2.5,
        plain_request_ids=True,
        tenants=TenantSettings(sources=("user",)),
    )


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVTIDE_SOCKET", "/s/from-env")
    assert Settings.from_environment().socket == Path("/s/from-env")


def test_the_key_lies_beside_the_socket_unless_named() -> None:
    assert read(SOCKET="/s/a").key_file == Path("/s/agent.key")
    assert read(SOCKET="/s/a", KEY_FILE="").key_file == Path("/s/agent.key")


def test_empty_values_are_defaults() -> None:
    assert read(DISABLE="", SOCKET="", KEY_FILE="", AGENT_UIDS=" ", ENGINE_NAME=" ") == Settings.from_environment({})


@pytest.mark.parametrize("text", ["0", "", " false ", "No", "FALSE"])
def test_not_disabled(text: str) -> None:
    assert read(DISABLE=text).enabled


@pytest.mark.parametrize("text", ["1", "true", "yes", "YES ", "anything"])
def test_disabled(text: str) -> None:
    assert not read(DISABLE=text).enabled


def test_uids_that_are_given_replace_the_default() -> None:
    assert read(AGENT_UIDS="4242").agent_uids == frozenset({4242})


@pytest.mark.parametrize("text", ["no-such-user-here", "4242,no-such-user-here", "-1", "1.5", "4242,,5", "0x10", "²"])
def test_bad_users_fall_back_to_root_and_our_own_uid_in_one_line(text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert read(AGENT_UIDS=text).agent_uids == OURS
    (record,) = caplog.records
    assert "KVTIDE_AGENT_UIDS" in record.getMessage()
    assert "\n" not in record.getMessage()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "ten", "1e999"])
def test_bad_seconds_are_ten_minutes_in_one_line(text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert read(PIN_SECONDS=text).pin_seconds == 600.0
    (record,) = caplog.records
    assert "KVTIDE_PIN_SECONDS" in record.getMessage()


@pytest.mark.parametrize(("text", "on"), [("", False), ("0", False), ("No", False), ("1", True), ("yes", True)])
def test_plain_ids(text: str, on: bool) -> None:
    assert read(PLAIN_IDS=text).plain_request_ids is on
