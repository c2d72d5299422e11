"""What is to be done soon, and not by the engine's thread.

A frame that the engine's thread sends itself wakes the agent, and where cores are few the kernel may well let the agent
have this one at once: the engine then stands still for as long as the agent reads. To hand over costs a few
microseconds, and takes no lock that anybody holds while working.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

MAX_WAITING = 64
Errand = Callable[[], object]


class Errands:
    """Calls functions, each once and in order, on a thread that begins with the first. None of them may raise."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting: SimpleQueue[Errand | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, errand: Errand) -> bool:
        """Have ``errand`` called soon; return False where too many wait for that. Never blocks."""
        if self._thread is None and not self._started():
            errand()  # no thread can be had
            return True
        if self._waiting.qsize() >= MAX_WAITING:
            return False
        self._waiting.put(errand)
        return True

    def _started(self) -> bool:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        while (errand := self._waiting.get()) is not None:
            errand()

    def end(self, seconds: float) -> None:
        """End the thread once what waits is done; wait for that for at most ``seconds``. Nothing is to be put then."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        self._waiting.put(None)
        if thread is not threading.current_thread():
            thread.join(seconds)
