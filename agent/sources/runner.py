"""Runs sources: each on a thread of its own, so that one that hangs costs nobody else anything."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agent.sources.base import Source, SourceAbsentError, SourceError, SourceState

logger = logging.getLogger("kvtide.agent")

OLD_PERIODS = 3  # a value that is older has no more to say


class Runner:
    """Reads ``source`` again and again until closed. ``clock``: monotonic seconds."""

    def __init__(self, source: Source[msgspec.Struct], clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._value: msgspec.Struct | None = None
        self._reason = "not read yet"
        self._reads = self._failures = 0
        self._seconds: float | None = None
        self._finished: float | None = None
        self._began: float | None = None  # while a reading is under way
        self._late = False  # this reading was counted as failed already
        self._nothing = False  # there is nothing to read
        # A daemon: a thread that hangs in a driver must not keep the agent from ending.
        self._thread = threading.Thread(target=self._run, name=f"kvtide-{source.NAME}", daemon=True)

    @property
    def name(self) -> str:
        """The source's name."""
        return self._source.NAME

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread if it does not hang."""
        self._stop.set()
        self._source.close()
        if self._thread.is_alive():
            self._thread.join(0.5)

    def state(self) -> tuple[SourceState, msgspec.Struct | None]:
        """Return the health now, and the last value unless it is old or there is none."""
        now = self._clock()
        with self._lock:
            if self._began is not None and now - self._began > self._source.timeout and not self._late:
                self._late = True
                self._failed(f"no answer for {self._source.timeout:g} s", now)
            age = None if self._finished is None else now - self._finished
            old = age is not None and age > max(OLD_PERIODS * self._source.period, self._source.timeout)
            value = None if old or self._reason else self._value
            reason = self._reason or (f"the last reading is {age:.0f} s old" if old else "")
            health = SourceState(
                source=self.name,
                up=not reason,
                reason=reason,
                reads=self._reads,
                failures=self._failures,
                read_seconds=self._seconds,
                age_seconds=age,
                absent=self._nothing,
            )
        return health, value

    def _run(self) -> None:
        due = self._clock()
        while not self._stop.is_set():
            self._read()
            # No reading is made up for: after one that took long the next comes a period later.
            due = max(due + self._source.period, self._clock())
            self._stop.wait(due - self._clock())

    def _read(self) -> None:
        began = self._clock()
        with self._lock:
            self._began, self._late = began, False
        try:
            value, reason = self._source.read(), ""
        except SourceAbsentError as error:
            self._absent(str(error))
            return
        except SourceError as error:
            value, reason = None, str(error)
        except Exception as error:
            value, reason = None, f"{type(error).__name__}: {error}"
            if self._reason != reason:
                logger.exception("source %s", self.name)
        with self._lock:
            now = self._clock()
            self._began = None
            self._reads += 1
            self._seconds = now - began
            if value is None:
                self._failed(reason, now)
                return
            if self._reason and self._reads > 1:
                logger.info("source %s reads again", self.name)
            self._value, self._reason, self._finished, self._nothing = value, "", now, False

    def _absent(self, reason: str) -> None:
        with self._lock:
            now = self._clock()
            self._seconds = now - (self._began or now)
            self._began = None
            self._reads += 1
            if self._reason != reason:
                logger.info("source %s: %s", self.name, reason)
            self._reason, self._finished, self._value, self._nothing = reason, now, None, True

    def _failed(self, reason: str, now: float) -> None:
        if self._reason != reason:
            logger.warning("source %s: %s", self.name, reason)
        self._reason, self._finished, self._value, self._nothing = reason, now, None, False
        self._failures += 1


class Sources:
    """All sources of the agent; ``readings`` gives their health and what they read, by name."""

    def __init__(self, sources: Sequence[Source[Any]]) -> None:
        self._runners = [Runner(source) for source in sources]

    def start(self) -> None:
        """Start reading."""
        for runner in self._runners:
            runner.start()

    def close(self) -> None:
        """Stop reading; what hangs is left behind."""
        for runner in self._runners:
            runner.close()

    def readings(self) -> tuple[tuple[SourceState, ...], dict[str, Any]]:
        """Return each source's health, and the values of those that are up."""
        states = [(runner.name, *runner.state()) for runner in self._runners]
        return tuple(health for _, health, _ in states), {name: value for name, _, value in states if value is not None}
