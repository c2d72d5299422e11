"""Where the fleet's word is where agents share a coordinator: an annotation of its Lease, or a file in its folder."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from agent.balancer.coordinator import CoordinatorError
from agent.balancer.http_client import JsonClient
from agent.balancer.kubernetes import GROUP
from agent.balancer.leases import Lease, Leases, at, part

ANNOTATION = f"{GROUP}/fleet-orders"
FILE = "fleet"
MOST_BYTES = 64 << 10  # more can't be all of it
MODE = 0o644  # agents of other users read it


class Words(Protocol):
    """``place`` is for people; ``seconds``: how often it may be read. All of it raises :class:`CoordinatorError`."""

    place: str
    seconds: float

    async def read(self) -> str:
        """Return the word, empty where nobody has said anything."""

    async def change(self, make: Callable[[str], str]) -> None:
        """Put what ``make`` makes of the word in its place. What ``make`` raises leaves it as it was."""

    async def close(self) -> None:
        """End connections."""


class LeaseWords:
    """An annotation of the fleet's Lease. Read from the API server's cache: a fleet asks often, and it may be a moment
    old.
    """

    seconds = 3.0

    def __init__(self, client: JsonClient, namespace: str, lease: str) -> None:
        self._leases, self._lease = Leases(client, namespace), lease
        self.place = f"Lease {namespace}/{lease}, {ANNOTATION}"

    async def read(self) -> str:
        """See :class:`Words`."""
        return _text(await self._leases.read(self._lease, cached=True))

    async def change(self, make: Callable[[str], str]) -> None:
        """See :class:`Words`."""

        def act(lease: Lease) -> bool:
            part(lease, "metadata", "annotations")[ANNOTATION] = make(_text(lease))
            return True

        await self._leases.change(self._lease, act)

    async def close(self) -> None:
        """See :class:`Words`."""
        await self._leases.close()


class FileWords:
    """A file beside the leases in ``directory``, or another that is named."""

    seconds = 1.0

    def __init__(self, directory: Path, name: str = FILE) -> None:
        self._file = directory / name
        self.place = str(self._file)

    async def read(self) -> str:
        """See :class:`Words`."""
        return await asyncio.to_thread(self._read)

    async def change(self, make: Callable[[str], str]) -> None:
        """See :class:`Words`."""
        await asyncio.to_thread(self._change, make)

    async def close(self) -> None:
        """There is nothing to end."""

    def _read(self) -> str:
        try:
            with self._file.open("rb") as file:
                body = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            if self._file.parent.is_dir():
                return ""
            raise CoordinatorError(f"{self._file.parent}: is not there") from None
        except OSError as error:
            raise CoordinatorError(f"{self._file}: {error.strerror}") from None
        return _bounded(body.decode(errors="replace"))

    def _change(self, make: Callable[[str], str]) -> None:
        try:
            folder = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise CoordinatorError(f"{self._file.parent}: {error.strerror}") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # persons at the same time
            replace(self._file, make(self._read()).encode())
        except OSError as error:
            raise CoordinatorError(f"{self._file}: {error.strerror}") from None
        finally:
            os.close(folder)


def replace(file: Path, body: bytes) -> None:
    """Put ``body`` in the place of what is in ``file``; readers see the one or the other. Raises :class:`OSError`."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with new.open("xb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        new.chmod(MODE)
        new.rename(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _text(lease: Lease | None) -> str:
    found = at(lease, "metadata", "annotations", ANNOTATION)
    return _bounded(found) if isinstance(found, str) else ""


def _bounded(text: str) -> str:
    if len(text) > MOST_BYTES:
        raise CoordinatorError("the fleet's word is too long")
    return text
