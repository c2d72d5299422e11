"""A coordinator in a folder that the agents of one host share: one file under a lock.

The wall clock says when leases end; one that lies too far ahead (the clock was set back) has ended, too.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from agent.balancer.coordinator import LEASE_SECONDS, TIMEOUT_SECONDS, CoordinatorError, Grant, verdict

MOST_BYTES = 1 << 20
MOST_ENGINES = 4096
POLL_SECONDS = 0.01


class Book(msgspec.Struct):
    """What is in the file: Unix times until which engines are counted, and until which grants last, by node/engine."""

    engines: dict[str, float] = {}
    grants: dict[str, float] = {}


class FileCoordinator:
    """Keeps its book in ``directory``. ``wall``: Unix time, the same for all who share the folder."""

    name = "file"

    def __init__(self, directory: Path, node: str, share: float, wall: Callable[[], float] = time.time) -> None:
        self._directory, self._node, self._share, self._wall = directory, node, share, wall

    async def alive(self, engines: Sequence[str]) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        with_lease = self._wall() + LEASE_SECONDS
        new = {self._key(engine): with_lease for engine in engines}
        await asyncio.to_thread(self._change, lambda book: book.engines.update(new))

    async def grant(self, engine: str) -> Grant:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        answers: list[Grant] = []

        def ask(book: Book) -> None:
            key, until = self._key(engine), self._wall() + LEASE_SECONDS
            book.engines[key] = until
            others = sum(other != key for other in book.grants)
            answers.append(verdict(len(book.engines), others, self._share))
            if answers[0].granted:
                book.grants[key] = until
            else:
                book.grants.pop(key, None)

        await asyncio.to_thread(self._change, ask)
        return answers[0]

    async def release(self, engine: str) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        await asyncio.to_thread(self._change, lambda book: book.grants.pop(self._key(engine), None))

    async def close(self) -> None:
        """There is nothing to end."""

    def _key(self, engine: str) -> str:
        return f"{self._node}/{engine}"

    def _change(self, act: Callable[[Book], object]) -> None:
        """Let ``act`` change what is left of the book. On a thread: the lock may be held by another agent."""
        try:
            with self._locked():
                book = self._read()
                act(book)
                if len(book.engines) > MOST_ENGINES:
                    raise CoordinatorError(f"{self._directory}: more than {MOST_ENGINES} engines")
                new = self._directory / "book.new"
                new.write_bytes(msgspec.json.encode(book))
                new.replace(self._directory / "book.json")
        except OSError as error:
            raise CoordinatorError(f"{self._directory}: {error.strerror or error}") from None

    def _read(self) -> Book:
        try:
            with (self._directory / "book.json").open("rb") as file:
                data = file.read(MOST_BYTES)
            book = msgspec.json.decode(data, type=Book)
        except FileNotFoundError:
            book = Book()
        except (msgspec.MsgspecError, ValueError) as error:
            raise CoordinatorError(f"{self._directory / 'book.json'}: {error}; remove it to begin anew") from None
        now = self._wall()
        for leases in (book.engines, book.grants):
            for key in [key for key, until in leases.items() if not now < until <= now + LEASE_SECONDS + 1.0]:
                del leases[key]
        return book

    @contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS / 2
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise CoordinatorError(f"{self._directory}: another agent keeps the lock") from None
                    time.sleep(POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)  # this gives the lock back
