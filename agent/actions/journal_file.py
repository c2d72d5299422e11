"""The journal's file: its tables, how it is kept small, and how it is read without an agent."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from agent.actions.errors import JournalError
from agent.actions.types import Action
from agent.subject import Value

VERSION = 1
KEEP_SECONDS = 90 * 86400.0
MOST_ROWS = 100_000
MOST_BYTES = 64 << 20
BUSY_SECONDS = 2.0

_SCHEMA = """
CREATE TABLE actions (id TEXT PRIMARY KEY, at REAL NOT NULL, live INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX actions_at ON actions (at);
CREATE TABLE steps (number INTEGER PRIMARY KEY, action TEXT NOT NULL, at REAL NOT NULL, phase TEXT, reason TEXT);
CREATE INDEX steps_action ON steps (action);
CREATE TABLE refusals (number INTEGER PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, body BLOB NOT NULL);
"""

action_decoder = msgspec.json.Decoder(Action)


class Refused(Value, frozen=True, kw_only=True):
    """A plan that was not run, and why. ``at``: Unix seconds."""

    at: float
    lever: str
    engine: str
    kind: str
    code: str
    text: str


class Step(Value, frozen=True, kw_only=True):
    """One change of an action."""

    at: float
    phase: str
    reason: str


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Make the tables in a new file; raise where the file is damaged or of a newer kvtide."""
    (sound,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if sound != "ok":
        raise JournalError(f"{path}: damaged ({sound}); move it away, and what is in force ends by its lease")
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise JournalError(f"{path}: written by a newer kvtide (schema {version}); this one knows {VERSION}")
    if version == 0:
        with transaction(db):
            for statement in _SCHEMA.split(";"):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")


def tidy(
    db: sqlite3.Connection, keep_seconds: float = KEEP_SECONDS, rows: int = MOST_ROWS, size: int = MOST_BYTES
) -> None:
    """Forget what is too old, too much or too large; what has not ended stays. Ages are against the newest entry."""
    with transaction(db):
        for table in ("actions", "refusals"):
            (newest,) = db.execute(f"SELECT max(at) FROM {table}").fetchone()  # noqa: S608 - a name of ours
            live = " AND NOT live" if table == "actions" else ""
            db.execute(f"DELETE FROM {table} WHERE at < ?{live}", ((newest or 0.0) - keep_seconds,))  # noqa: S608
            _thin(db, table, live, rows)
        if _bytes(db) > size:
            for table, live in (("actions", " AND NOT live"), ("refusals", "")):
                (number,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
                _thin(db, table, live, number // 2)
        db.execute("DELETE FROM steps WHERE action NOT IN (SELECT id FROM actions)")
        (steps,) = db.execute("SELECT count(*) FROM steps").fetchone()
        if steps > rows:
            db.execute("DELETE FROM steps WHERE number <= (SELECT max(number) FROM steps) - ?", (rows,))


def _thin(db: sqlite3.Connection, table: str, live: str, rows: int) -> None:
    db.execute(
        f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} ORDER BY at DESC LIMIT -1 OFFSET ?){live}",  # noqa: S608
        (rows,),
    )


def _bytes(db: sqlite3.Connection) -> int:
    (pages,), (size,), (free,) = (
        db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size", "freelist_count")
    )
    return int((pages - free) * size)


def told_of(path: Path, error: sqlite3.Error) -> str:
    """Return what is wrong with the file, and what helps, in one line."""
    damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
    advice = "; move it away, and what is in force ends by its lease" if damaged else ""
    return f"{path}: {error}{advice}"


def look_up(
    path: Path, most: int, action: str = ""
) -> tuple[tuple[Action, ...], tuple[Step, ...], tuple[Refused, ...]]:
    """Return the newest actions (or the one asked for, with its steps) and refusals, without an agent.

    Raises :class:`JournalError`.
    """
    try:
        db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=BUSY_SECONDS)
        try:
            if db.execute("PRAGMA user_version").fetchone() == (0,):
                return (), (), ()  # it is being made
            where, value = ("WHERE id = ?", (action, most)) if action else ("", (most,))
            rows: Sequence[tuple[bytes]] = db.execute(
                f"SELECT body FROM actions {where} ORDER BY at DESC LIMIT ?",  # noqa: S608
                value,
            ).fetchall()
            steps = db.execute("SELECT at, phase, reason FROM steps WHERE action = ? ORDER BY number", (action,))
            told = tuple(Step(at=at, phase=phase, reason=reason) for at, phase, reason in steps)
            refused = db.execute("SELECT body FROM refusals ORDER BY number DESC LIMIT ?", (most,)).fetchall()
        finally:
            db.close()
        return (
            tuple(action_decoder.decode(row[0]) for row in rows),
            told,
            tuple(msgspec.json.decode(row[0], type=Refused) for row in refused),
        )
    except sqlite3.Error as error:
        raise JournalError(_missing(path) or told_of(path, error)) from None
    except msgspec.MsgspecError as error:
        raise JournalError(f"{path}: an entry can't be read ({error})") from None


def _missing(path: Path) -> str:
    """Return that there is no journal; empty where there is one, or where it can't be told."""
    with suppress(OSError):
        if not path.exists():
            return f"{path}: there is none; it begins with the first action, and --state-directory says where it is"
    return ""
