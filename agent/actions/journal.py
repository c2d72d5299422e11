"""The journal: every plan that was acted on, every refusal and outcome, in SQLite. Used by one thread.

An intent is on the disk (WAL, ``synchronous=FULL``) before anything is sent; a process that is killed at any point
leaves a journal from which the next one knows what it may find in the engines.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from agent.actions.errors import JournalError
from agent.actions.journal_file import BUSY_SECONDS, Refused, action_decoder, prepare, tidy, told_of, transaction
from agent.actions.types import LIVE_PHASES, Action

FILE = "actions.db"
# Actions that are read at the start: of the agent's own, by which it keeps its budget, and of what persons ordered.
RECENT_OWN, RECENT_ORDERED = 256, 64
_LATEST = """
SELECT body FROM actions WHERE live
OR id IN (SELECT id FROM actions WHERE coalesce(json_extract(CAST(body AS TEXT), '$.by'), 'agent') = 'agent'
          ORDER BY at DESC LIMIT ?)
OR id IN (SELECT id FROM actions WHERE json_extract(CAST(body AS TEXT), '$.by') <> 'agent'
          ORDER BY at DESC LIMIT ?)
ORDER BY at DESC
"""
TIDY_EVERY = 256  # writes
CACHE_KIB = 256  # of the file's pages, in memory

T = TypeVar("T")


@dataclass(slots=True)
class Kept:
    """What an agent before this one has left: actions newest first, and facts by name."""

    actions: tuple[Action, ...] = ()
    facts: dict[str, bytes] = field(default_factory=dict)


class Journal:
    """The file in ``directory``. Whatever is raised is a :class:`JournalError`; the next call opens it anew."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE
        self._db: sqlite3.Connection | None = None
        self._lock: int | None = None
        self._writes = 0

    def exists(self) -> bool:
        """Whether there is a file to be read."""
        return self.path.exists()

    def read(self) -> Kept:
        """Return the latest actions, all that have not ended among them, and the facts."""

        def read(db: sqlite3.Connection) -> Kept:
            rows = db.execute(_LATEST, (RECENT_OWN, RECENT_ORDERED)).fetchall()
            facts = dict(db.execute("SELECT name, body FROM facts").fetchall())
            return Kept(tuple(action_decoder.decode(row[0]) for row in rows), facts)

        return self._do(read)

    def put(self, action: Action) -> None:
        """Write an action as it is now; it is on the disk when this returns."""

        def write(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO actions VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET live = excluded.live,"
                " body = excluded.body",
                (action.id, action.at, action.phase in LIVE_PHASES, msgspec.json.encode(action)),
            )
            db.execute(
                "INSERT INTO steps (action, at, phase, reason) VALUES (?, ?, ?, ?)",
                (action.id, action.changed, action.phase, action.reason),
            )

        self._write(write)

    def refuse(self, refused: Refused) -> None:
        """Write a refusal. Should the power fail, the last ones may be lost: nothing was done by them."""
        row = (refused.at, msgspec.json.encode(refused))
        self._write(lambda db: db.execute("INSERT INTO refusals (at, body) VALUES (?, ?)", row), durable=False)

    def keep(self, name: str, body: bytes) -> None:
        """Write a fact in the place of what it was."""
        self._write(
            lambda db: db.execute(
                "INSERT INTO facts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET body = excluded.body", (name, body)
            )
        )

    def close(self) -> None:
        """Close the file and let another agent have it."""
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
            self._db = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # -- the file ---------------------------------------------------------------------------------------------------

    def _write(self, write: Callable[[sqlite3.Connection], object], *, durable: bool = True) -> None:
        self._do(lambda db: self._written(db, write, "FULL" if durable else "NORMAL"))

    def _written(self, db: sqlite3.Connection, write: Callable[[sqlite3.Connection], object], sync: str) -> None:
        db.execute(f"PRAGMA synchronous = {sync}")
        with transaction(db):
            write(db)
        self._writes += 1
        if self._writes % TIDY_EVERY == 0:
            tidy(db)

    def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._open())
        except JournalError:
            self.close()
            raise
        except sqlite3.Error as error:
            self.close()
            raise JournalError(told_of(self.path, error)) from None
        except msgspec.MsgspecError as error:
            self.close()
            raise JournalError(f"{self.path}: an entry can't be read ({error}); move the file away") from None
        except OSError as error:
            self.close()
            raise JournalError(f"{error.filename or self.path}: {error.strerror}") from None

    def _open(self) -> sqlite3.Connection:
        if self._db is not None and self._lock is not None:
            if os.fstat(self._lock).st_nlink and self.path.exists():
                return self._db
            self.close()  # it was moved away: what is written to it now nobody would find
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # names of tenants are in it
        db = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            db.execute("PRAGMA journal_mode = WAL")
            # Writes go to the file's end and nothing is read again: 2 MB of pages (SQLite's way) would come to be kept.
            db.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            prepare(db, self.path)
            tidy(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _take_lock(self) -> None:
        lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise JournalError(f"{self.path}: another agent acts by it") from None
        self._lock = lock
