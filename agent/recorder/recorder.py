"""The recorder's thread: takes judged states from the agent's loop, which never waits for a disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from msgspec.structs import replace

from agent.bundle.format import BundleError, Usuals
from agent.bundle.records import encoded
from agent.recorder.state import RecorderState
from agent.recorder.store import Store
from agent.signals.baseline import Baselines
from agent.state import AgentState, Judgement

logger = logging.getLogger("kvtide.recorder")

WAITING = 16  # states that wait for a slow disk; more are dropped
CLOSE_SECONDS = 5.0
USUALS_SECONDS = 300.0  # what the judge has learned is kept so often

Work = Callable[[], None]


class Recorder:
    """Keeps states in ``store``, on a thread of its own; no method but :meth:`close` waits for a disk.

    ``baselines`` gives what the judge has learned, on the caller's thread.
    """

    def __init__(self, store: Store, baselines: Callable[[], Baselines]) -> None:
        self._store = store
        self._baselines = baselines
        self._work: queue.Queue[Work | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="kvtide-recorder", daemon=True)
        self._next_usuals = 0.0
        self._dropped = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def take(self, state: AgentState, judgement: Judgement) -> None:
        """Keep a judged state; it is counted as dropped where too many wait for a slow disk."""
        usuals = None
        if state.monotonic >= self._next_usuals:
            usuals = encoded(Usuals(baselines=self._baselines()))[1]
            self._next_usuals = state.monotonic + USUALS_SECONDS
        try:
            self._work.put_nowait(lambda: self._store.take(state, judgement, usuals))
        except queue.Full:
            self._dropped += 1

    def ask(self, seconds: float) -> Future[Path]:
        """Have a bundle of the last ``seconds`` made; who asks removes it. It may end with a KvtideError."""
        answer: Future[Path] = Future()

        def make() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(self._store.bundle(seconds, "kvtide record"))
                except OSError as error:
                    answer.set_exception(BundleError(f"{error.filename or 'the recorder'}: {error.strerror or error}"))
                except Exception as error:
                    answer.set_exception(error)

        try:
            self._work.put_nowait(make)
        except queue.Full:
            answer.set_exception(BundleError("the disk is too slow: states wait to be recorded; try again"))
        return answer

    def state(self) -> RecorderState:
        """Return what it is doing."""
        told = self._store.state
        return replace(told, dropped_total=told.dropped_total + self._dropped) if self._dropped else told

    def close(self) -> None:
        """End the files in order, unless the disk hangs."""
        usuals = encoded(Usuals(baselines=self._baselines()))[1]
        try:
            self._work.put(lambda: self._store.close(usuals), timeout=CLOSE_SECONDS)
            self._work.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:
                self._dropped += 1
                logger.exception("a state was not recorded")
