"""Exceptions of hooks are caught and counted, and a hook that keeps raising is switched off."""

from __future__ import annotations

import logging

import pytest

from engine_hooks.guard import ERROR_LIMIT, Guard


def boom(text: str = "boom") -> None:
    raise ValueError(text)


def test_the_result_and_the_arguments_pass() -> None:
    guard = Guard()
    assert guard.run("h", lambda a, b=0: (a, b), 1, b=2) == (1, 2)
    assert guard.errors == {}
    assert guard.off == {}


def test_errors_are_counted_by_hook() -> None:
    guard = Guard()
    for hook in ("a", "b", "a"):
        assert guard.run(hook, boom) is None
    assert guard.errors == {"a": 2, "b": 1}
    assert guard.off == {}


def test_the_fifth_error_switches_that_hook_off_and_no_other() -> None:
    guard, calls = Guard(), []
    for _ in range(4):
        guard.run("a", boom)
    assert guard.run("a", lambda: "works") == "works"
    guard.run("a", boom, "the last straw")
    assert guard.off == {"a": "ValueError: the last straw"}
    assert guard.run("a", calls.append, 1) is None
    assert calls == []
    assert guard.errors == {"a": 5}
    assert guard.run("b", lambda: "works") == "works"
    assert ERROR_LIMIT == 5


def test_the_reason_is_bounded() -> None:
    guard = Guard(limit=1)
    guard.run("a", boom, "x" * 10_000)
    assert guard.off["a"] == "ValueError: " + "x" * 188


def test_the_reason_can_be_sent_whatever_it_quotes() -> None:
    guard = Guard(limit=1)
    guard.run("a", boom, "id \x1b[0m \ud800 \u00fc")
    assert guard.off["a"] == "ValueError: id ?[0m ? \u00fc"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_ends_the_process_passes_and_does_not_count(kind: type[BaseException]) -> None:
    def leave() -> None:
        raise kind

    guard = Guard()
    with pytest.raises(kind):
        guard.run("a", leave)
    assert guard.errors == {}


def test_it_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    guard = Guard()
    with caplog.at_level(logging.DEBUG):
        for _ in range(8):
            guard.run("a", boom)
        guard.note("a", ValueError("noted while off"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]
    assert caplog.records[0].getMessage() == "kvtide: hook a raised; the engine goes on"
    assert caplog.records[1].getMessage() == "kvtide: hook a is off after 5 errors, the last one ValueError: boom"
    assert guard.errors == {"a": 6}
