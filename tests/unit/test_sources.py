"""The runner of sources: one that fails or hangs costs nobody else anything, and gives no value."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import msgspec
import pytest

from agent.sources.base import SourceAbsentError, SourceError
from agent.sources.runner import Runner, Sources
from tests.unit.support import eventually as until


class Value(msgspec.Struct, frozen=True):
    number: int


class Counter:
    """A source that counts its readings; ``do`` runs in each of them."""

    NAME = "counter"
    period = 0.01
    timeout = 5.0

    def __init__(self, do: Callable[[int], None] = lambda _: None, name: str = "counter") -> None:
        self.NAME = name
        self._do = do
        self.number = 0
        self.closed = threading.Event()

    def read(self) -> Value:
        self.number += 1
        self._do(self.number)
        return Value(self.number)

    def close(self) -> None:
        self.closed.set()


def test_a_source_is_read_again_and_again() -> None:
    source = Counter()
    sources = Sources([source])
    sources.start()
    until(lambda: sources.readings()[1].get("counter", Value(0)).number >= 3)
    health = sources.readings()[0][0]
    assert (health.up, health.reason, health.failures) == (True, "", 0)
    assert health.reads >= 3
    sources.close()
    assert source.closed.is_set()


@pytest.mark.parametrize(
    ("error", "reason"), [(SourceError("no driver here"), "no driver here"), (ValueError("odd"), "ValueError: odd")]
)
def test_a_reading_that_fails_leaves_no_value_but_a_reason(error: Exception, reason: str) -> None:
    broken = threading.Event()

    def do(_number: int) -> None:
        if broken.is_set():
            raise error

    sources = Sources([Counter(do)])
    sources.start()
    until(lambda: sources.readings()[1])
    broken.set()
    until(lambda: not sources.readings()[1])
    health = sources.readings()[0][0]
    assert (health.up, health.reason) == (False, reason)
    assert health.failures >= 1
    broken.clear()
    until(lambda: sources.readings()[1])
    assert sources.readings()[0][0].up
    sources.close()


def test_where_there_is_nothing_to_read_nothing_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    def do(_number: int) -> None:
        raise SourceAbsentError("no GPU here")

    runner = Runner(Counter(do))
    with caplog.at_level(logging.INFO):
        runner._read()
        runner._read()
    health, value = runner.state()
    assert (health.up, health.reason, health.reads, health.failures, value) == (False, "no GPU here", 2, 0, None)
    assert [record.levelname for record in caplog.records] == ["INFO"], "said once, and not as a warning"


def test_one_that_hangs_costs_the_others_nothing() -> None:
    let_go = threading.Event()

    def hang(number: int) -> None:
        if number == 2:
            let_go.wait(60)

    hanging, other = Counter(hang, "hanging"), Counter(name="other")
    hanging.timeout = 0.05
    sources = Sources([hanging, other])
    sources.start()
    until(lambda: "no answer for 0.05 s" in sources.readings()[0][0].reason)
    health, values = sources.readings()
    assert (health[0].up, health[0].reads) == (False, 1)
    assert "hanging" not in values
    seen = other.number
    until(lambda: other.number > seen + 2)
    assert "other" in sources.readings()[1]
    failures = sources.readings()[0][0].failures
    assert failures == 1, "one reading that hangs is one failure, however often it is looked at"
    let_go.set()
    until(lambda: sources.readings()[0][0].up)
    sources.close()


def test_an_old_value_is_no_value() -> None:
    now = 100.0
    source = Counter()
    source.period, source.timeout = 1.0, 2.0
    runner = Runner(source, clock=lambda: now)
    runner._read()
    assert runner.state()[1] == Value(1)
    now += 2.9
    assert runner.state()[1] == Value(1)
    now += 0.2
    health, value = runner.state()
    assert value is None
    assert (health.up, health.reason) == (False, "the last reading is 3 s old")
