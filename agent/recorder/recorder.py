"""The recorder's thread: takes judged states from the agent's loop, which never waits for a disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from agent.bundle.format import BundleError, Usuals
from agent.bundle.records import encoded
from agent.policy.types import Policy
from agent.recorder.state import RecorderState
from agent.recorder.store import Learned, Store
from agent.state import AgentState, Judgement

logger = logging.getLogger("kvtide.recorder")

WAITING = 16  # states that wait for a slow disk; more are dropped
CLOSE_SECONDS = 5.0
USUALS_SECONDS = 300.0  # what the judge has learned is kept so often

Work = Callable[[], None]


class Recorder:
    """Keeps states in ``store``, on a thread of its own; no method but :meth:`close` waits for a disk.

    ``usuals`` gives what the judge has learned, on the caller's thread. What fails is counted as dropped; each kind of
    failure is told once.
    """

    def __init__(self, store: Store, usuals: Callable[[], Usuals]) -> None:
        self._store = store
        self._usuals = usuals
        self._failures: Counter[str] = Counter()
        self._work: queue.Queue[Work | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="kvtide-recorder", daemon=True)
        self._next_usuals = 0.0
        self._dropped = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def adopt(self, policy: Policy) -> None:
        """Say in what is begun from now on that it is judged by another policy; not where too much waits for a disk."""
        told = policy.profile, policy.model_dump_json()
        with suppress(queue.Full):
            self._work.put_nowait(lambda: self._store.adopt(*told))

    def take(self, state: AgentState, judgement: Judgement) -> None:
        """Keep a judged state; it is counted as dropped where too many wait for a slow disk."""
        learned = None
        if state.monotonic >= self._next_usuals:
            learned = self._learned()
            self._next_usuals = state.monotonic + USUALS_SECONDS
        try:
            self._work.put_nowait(lambda: self._store.take(state, judgement, learned))
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
        learned = self._learned()
        try:
            self._work.put(lambda: self._store.close(learned.whole), timeout=CLOSE_SECONDS)
            self._work.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:
                self._dropped += 1
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Tell the first failure of each kind: one may come with each state."""
        at = error.__traceback__
        while at is not None and at.tb_next is not None:
            at = at.tb_next
        where = f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}" if at is not None else "nowhere"
        kind = f"{type(error).__name__} at {where}"
        self._failures[kind] += 1
        if self._failures[kind] == 1:
            logger.error("a state was not recorded: %s: %s: please report this (it is told once)", kind, error)

    def _learned(self) -> Learned:
        usuals = self._usuals()
        return Learned(encoded(usuals)[1], encoded(replace(usuals, tracks=None))[1])
