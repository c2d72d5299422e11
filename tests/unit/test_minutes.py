"""Lengths of time from a command line: NaN, nothing and what is below are none."""

from __future__ import annotations

import pytest

from agent.cli.app import run
from agent.cli.minutes import minutes_of
from agent.errors import ConfigError


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_what_is_no_length_of_time_is_refused(value: float) -> None:
    with pytest.raises(ConfigError, match="--minutes: "):
        minutes_of(value)


def test_half_a_minute_is_one() -> None:
    assert minutes_of(0.5) == 0.5


@pytest.mark.parametrize(
    "arguments",
    [
        ["actions", "veto", "--minutes", "nan"],
        ["actions", "order", "active_cap", "m", "requests=20", "--minutes", "-3"],
        ["node", "drain", "m", "--minutes", "inf"],
    ],
)
def test_nothing_is_sent_for_one_that_is_none(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--socket", "/nowhere/agent.sock"]) == 2
    assert capsys.readouterr().err.startswith("kvtide: --minutes: ")
