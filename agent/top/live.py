"""States of a live agent, fetched on a thread of its own: one that hangs costs the screen nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from agent.errors import KvtideError
from agent.state import AgentState

EVERY_SECONDS = 1.0
LATE_SECONDS = 5.0  # without an answer: the thread may hang in a call that has no end


class Answer(NamedTuple):
    """``state`` or ``problem``; ``at`` by the monotonic clock here, ``unix`` by the wall's."""

    at: float
    unix: float
    state: AgentState | None
    problem: str = ""


class Live:
    """Calls ``fetch`` once every so many seconds from :meth:`start` to :meth:`stop`, and ``arrived`` after each.

    ``arrived`` is called on the thread. ``fetch`` is made by ``opening`` there, too: what that imports takes a while.
    The thread is a daemon: a process can end while it hangs.
    """

    def __init__(
        self,
        opening: Callable[[], Callable[[], AgentState]],
        arrived: Callable[[], None],
        every: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._opening, self._arrived, self._every, self._clock = opening, arrived, every, clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvtide-top", daemon=True)
        self._began = clock()
        self._answer: Answer | None = None
        self._good: Answer | None = None
        self._bad_since: float | None = None

    def start(self) -> None:
        """Begin to ask, unless that was begun."""
        if self._thread.ident is None:
            self._began = self._clock()
            self._thread.start()

    def stop(self) -> None:
        """Ask no more; an answer that is awaited is not waited for."""
        self._ended.set()

    def state(self) -> AgentState | None:
        """Return the last state that came; None before any did."""
        return self._good.state if self._good is not None else None

    def age(self) -> float | None:
        """Return the seconds since it came."""
        return self._clock() - self._good.at if self._good is not None else None

    def problem(self) -> tuple[str, float]:
        """Return why nothing new comes, and since when (Unix seconds); empty where it does."""
        answer, now = self._answer, self._clock()
        if answer is not None and answer.problem:
            return answer.problem, self._bad_since or answer.unix
        waited = now - (answer.at if answer is not None else self._began)
        if waited > LATE_SECONDS:
            return "it was asked, and has not answered yet", time.time() - waited
        return "", 0.0

    def _run(self) -> None:
        fetch: Callable[[], AgentState] | None = None
        while not self._ended.is_set():
            began = self._clock()
            state, problem = None, ""
            try:
                fetch = fetch or self._opening()
                state = fetch()
            except KvtideError as error:
                problem = str(error)
            except Exception as error:  # whatever an agent sends: the screen stays, and says so
                problem = f"{type(error).__name__}: {error}"
            answer = Answer(self._clock(), time.time(), state, problem)
            if state is not None:
                self._good, self._bad_since = answer, None
            elif self._bad_since is None:
                self._bad_since = self._good.unix if self._good is not None else answer.unix
            self._answer = answer
            if self._ended.is_set():
                return
            self._arrived()
            self._ended.wait(max(0.05, self._every - (self._clock() - began)))
