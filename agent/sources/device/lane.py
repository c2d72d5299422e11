"""Makes calls that may hang, one after another, on a thread that is left behind when one does.

A driver that hangs holds the thread that called it, and nothing can free that. So calls run on a worker; when one takes
longer than it may, the worker is left behind with it, another goes on with the rest, and that call is not made again
until it has returned. In the good case that costs one hand-over per reading.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

HANGING_PER_CARD = 3  # threads left behind for one card; then it counts as silent and is asked nothing


class Key(NamedTuple):
    """What is asked: a field of a GPU by its label, or of the driver (``""``)."""

    gpu: str
    field: str

    @property
    def card(self) -> str:
        """The GPU itself where ``gpu`` is one of its instances."""
        return self.gpu.partition("/")[0]


class Call(NamedTuple):
    """``run`` may raise and may hang."""

    key: Key
    run: Callable[[], object]


class Answer(NamedTuple):
    """What a call returned, or what it raised."""

    value: object
    error: Exception | None


class Lane:
    """``patience``: seconds that a call may take. Bounded: at most ``HANGING_PER_CARD`` threads per card hang."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience = patience
        self._clock = clock
        self._lock = threading.Lock()
        self._hanging: set[Key] = set()
        self._inbox: queue.SimpleQueue[_Batch | None] | None = None

    def make(self, calls: Sequence[Call], budget: float) -> dict[Key, Answer]:
        """Make ``calls`` within ``budget`` seconds; those without an answer hang or were not made: see ``why``."""
        deadline = self._clock() + budget
        answers: dict[Key, Answer] = {}
        rest = list(calls)
        while rest := [call for call in rest if not self._blocked(call.key)]:
            if self._clock() >= deadline:
                break
            batch = _Batch(rest, answers, self._lock, self._clock)
            self._worker().put(batch)
            stuck = self._watch(batch, deadline)
            if stuck is None:
                break
            # The others must not wait for one card: what is left of it comes last.
            card = rest[stuck].key.card
            rest = sorted(rest[stuck + 1 :], key=lambda call: call.key.card == card)
        return answers

    def hanging(self) -> bool:
        """Whether any call hangs now."""
        with self._lock:
            return bool(self._hanging)

    def silent(self, card: str) -> bool:
        """Whether so many calls of this card hang that it is asked nothing more."""
        with self._lock:
            return sum(key.card == card for key in self._hanging) >= HANGING_PER_CARD

    def why(self, key: Key) -> str:
        """Say why there was no answer."""
        with self._lock:
            if key in self._hanging:
                return f"hangs in the driver: no answer within {self._patience:g} s"
        if self.silent(key.card):
            return f"not asked: {HANGING_PER_CARD} other calls for it hang in the driver"
        return "not read: other calls took all the time"

    def close(self, last: Callable[[], None]) -> None:
        """Run ``last`` after what is under way, unless something hangs, and end; waits for nothing."""
        if self._inbox is not None and not self.hanging():
            self._inbox.put(_Batch([Call(Key("", "close"), last)], {}, self._lock, self._clock))
        if self._inbox is not None:
            self._inbox.put(None)
            self._inbox = None

    def _blocked(self, key: Key) -> bool:
        # As a rule nothing hangs, and this is asked for each call of each reading.
        return bool(self._hanging) and (self.silent(key.card) or key in self._hanging)

    def _worker(self) -> queue.SimpleQueue[_Batch | None]:
        if self._inbox is None:
            self._inbox = queue.SimpleQueue()
            threading.Thread(target=self._serve, args=(self._inbox,), name="kvtide-nvml", daemon=True).start()
        return self._inbox

    def _serve(self, inbox: queue.SimpleQueue[_Batch | None]) -> None:
        while (batch := inbox.get()) is not None:
            if not batch.work():
                with self._lock:
                    self._hanging.discard(batch.current.key)
                return

    def _watch(self, batch: _Batch, deadline: float) -> int | None:
        """Return None when the batch is done, or the position of the call that its worker was left behind with."""
        while True:
            with self._lock:
                until = min(batch.began + self._patience, deadline)
                if not batch.done.is_set() and self._clock() >= until:
                    batch.left_behind = True
                    self._hanging.add(batch.current.key)
                    self._inbox = None
                    return batch.position
            if batch.done.wait(max(0.0, until - self._clock())):
                return None


class _Batch:
    """Calls for a worker; ``answers`` gets theirs as long as it is not left behind."""

    def __init__(
        self,
        calls: Sequence[Call],
        answers: dict[Key, Answer],
        lock: threading.Lock,
        clock: Callable[[], float],
    ) -> None:
        self.calls = calls
        self.done = threading.Event()
        self.left_behind = False
        self.position = 0
        self.began = clock()
        self._answers = answers
        self._lock = lock
        self._clock = clock

    @property
    def current(self) -> Call:
        """The call under way."""
        return self.calls[self.position]

    def work(self) -> bool:
        """Make the calls; False when left behind meanwhile."""
        for position, call in enumerate(self.calls):
            if not self._begin(position):
                return False
            try:
                answer = Answer(call.run(), None)
            except Exception as error:
                answer = Answer(None, error)
            if not self._end(call.key, answer):
                return False
        self.done.set()
        return True

    def _begin(self, position: int) -> bool:
        with self._lock:
            if not self.left_behind:
                self.position, self.began = position, self._clock()
            return not self.left_behind

    def _end(self, key: Key, answer: Answer) -> bool:
        with self._lock:
            if not self.left_behind:
                self._answers[key] = answer
            return not self.left_behind
