"""What all injectors share: a thread that does harm at a pace, bounded in time, and always takes it back."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from kvtide_chaos import quantities

TICK_SECONDS = 0.1


class InjectorError(RuntimeError):
    """The injector itself failed: what was to be shown by it has not been shown."""


class Injector(ABC):
    """A fault that lasts while the ``with`` block does, or ``duration`` at most.

    ``start`` and ``stop`` do the same for callers without a block; both may be called again without effect. After
    ``duration`` the harm ends by itself, so that a forgotten injector does not outlive its test.
    """

    def __init__(self, duration: str | float = "10m") -> None:
        self.duration_seconds = quantities.seconds(duration)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def start(self) -> Self:
        """Begin to do harm, in a thread of its own; raises what ``_begin`` finds wrong."""
        if self._thread is None:
            self._begin()
            self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """End it and take it back; raise ``InjectorError`` if it failed on the way."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise InjectorError(f"{type(self).__name__} failed: {failure}") from failure

    @property
    def running(self) -> bool:
        """Whether the harm is being done now."""
        return self._thread is not None and self._thread.is_alive()

    def wait(self) -> None:
        """Return when it has ended by itself: after ``duration``."""
        if self._thread is not None:
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except InjectorError as failure:
            # What the block raised says more; ours is added to it, not put in its place.
            if error is None:
                raise
            error.add_note(str(failure))

    def _run(self) -> None:
        began = time.monotonic()
        try:
            while not self._ended.is_set() and time.monotonic() - began < self.duration_seconds:
                self._step(time.monotonic() - began)
                self._ended.wait(TICK_SECONDS)
        except Exception as error:
            self._failure = error
        finally:
            self._take_back()

    @abstractmethod
    def _begin(self) -> None:
        """Raise what is wrong before the thread starts: ``ValueError``, ``OSError``, ``RuntimeError``."""

    @abstractmethod
    def _step(self, elapsed: float) -> None:
        """Do what is due ``elapsed`` seconds after the start; called about ten times a second."""

    @abstractmethod
    def _take_back(self) -> None:
        """Undo the harm as far as it can be undone; always called once, in the injector's thread."""
