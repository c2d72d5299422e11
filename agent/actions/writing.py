"""The journal's thread: the agent's loop waits for an intent to be on the disk, and for nothing else."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from agent.actions.errors import JournalError
from agent.actions.journal import Journal, Kept
from agent.actions.journal_file import Refused
from agent.actions.types import Action

logger = logging.getLogger("kvtide.actions")

WAITING = 1024  # entries that wait for a slow disk; more are dropped and told
CLOSE_SECONDS = 5.0

Work = Callable[[], Kept | None]
Task = Callable[[], object]


class JournalThread:
    """Writes in the order in which it is asked to. ``problem``: why it can't, empty where it can. ``missed``: something
    that nobody waits for was not written since this was last set to false.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._work: queue.Queue[Task | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="kvtide-journal", daemon=True)
        self._started = False
        self.problem = ""
        self.missed = False

    def start(self) -> None:
        """Begin."""
        self._started = True
        self._thread.start()

    async def read(self, seconds: float) -> Kept:
        """Return what is in the journal; nothing where there is none. Raises :class:`JournalError`."""
        return await self._wait(lambda: self._journal.read() if self._journal.exists() else Kept(), seconds)

    async def intend(self, action: Action, seconds: float) -> None:
        """Have ``action`` on the disk when this returns. Raises :class:`JournalError`, also after so many seconds."""
        await self._wait(lambda: self._journal.put(action), seconds)

    def put(self, action: Action) -> None:
        """Write an action as it is now, soon."""
        self._post(lambda: self._journal.put(action))

    def refuse(self, refused: Refused) -> None:
        """Write a refusal, soon."""
        self._post(lambda: self._journal.refuse(refused))

    def keep(self, name: str, body: bytes) -> None:
        """Write a fact, soon."""
        self._post(lambda: self._journal.keep(name, body))

    def close(self) -> None:
        """Write what waits and end, unless the disk hangs."""
        if not self._started:
            return
        try:
            self._work.put(self._journal.close, timeout=CLOSE_SECONDS)
            self._work.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    # -- both threads -----------------------------------------------------------------------------------------------

    def _post(self, work: Work) -> None:
        try:
            self._work.put_nowait(lambda: self._try(work))
        except queue.Full:
            self.missed = True
            self._tell("the disk is too slow: entries wait to be written")

    async def _wait(self, work: Work, seconds: float) -> Kept:
        answer: Future[Kept | None] = Future()

        def run() -> None:
            try:
                answer.set_result(self._try(work, again=True))
            except JournalError as error:
                answer.set_exception(error)

        try:
            self._work.put_nowait(run)
            found = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(answer)), seconds)
        except (queue.Full, TimeoutError):
            self._tell("the disk is too slow")
            raise JournalError(f"{self._journal.path}: {self.problem}") from None
        return found if found is not None else Kept()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _try(self, work: Work, *, again: bool = False) -> Kept | None:
        """Do it and note how that went; a failure is raised where somebody waits for it (``again``)."""
        try:
            done = work()
        except JournalError as error:
            self._tell(str(error))
            if again:
                raise
            self.missed = True
            return None
        except Exception as error:
            logger.exception("the journal failed: please report this")
            self._tell(f"{type(error).__name__}: {error}")
            if again:
                raise JournalError(self.problem) from None
            self.missed = True
            return None
        self._tell("")
        return done

    def _tell(self, problem: str) -> None:
        if problem != self.problem:
            if problem:
                logger.error("the journal can't be used: %s; nothing is done until it can", problem)
            else:
                logger.info("the journal can be written again")
        self.problem = problem
