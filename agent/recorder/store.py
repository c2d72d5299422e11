"""All that the recorder keeps on disk. Used by one thread; a disk that refuses is said once and tried again."""

from __future__ import annotations

import fcntl
import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agent.bundle.format import SUFFIX, BundleError, Change, Header
from agent.bundle.records import USUALS, encoded
from agent.recorder.assemble import Ages, assemble
from agent.recorder.incidents import Incidents
from agent.recorder.series import Raw, Series
from agent.recorder.shelf import PART, Shelf
from agent.recorder.state import RecorderState
from agent.recorder.triggers import Triggers
from agent.state import AgentState, Judgement

logger = logging.getLogger("kvtide.recorder")

FULL_CHUNK_SECONDS, COARSE_CHUNK_SECONDS = 300.0, 21600.0
COARSE_SECONDS = 60.0  # one state a minute is kept for long
TIDY_SECONDS = 60.0
RETRY_SECONDS = 30.0
BUNDLES_SHARE, CHUNK_SHARE = 4, 16  # of all bytes: a quarter for bundles, a sixteenth for one chunk
MOST_ASKED = 8  # bundles that were asked for and are not fetched yet: they are beyond the limit of bytes
MOST_CHANGES = 256  # verdicts between two coarse states
BASELINES = "baselines.msgpack"
_NOT_BEGUN = "not begun yet"


class Learned(NamedTuple):
    """Records of what the judge has learned: all of it, and without what slow estimates rest on, which is large."""

    whole: bytes
    lean: bytes


class Store:
    """Files under ``directory``: ``recorder/``, ``bundles/`` and what the judge has learned; ``max_bytes`` in all.

    ``header``: what each file says of its maker. ``full_seconds``, ``coarse_seconds``: how long states stay, all of
    them, and one a minute. How old something is does not follow the wall clock, which may be set: it is by the
    monotonic one, and for what earlier agents have left by how much has been recorded since.
    """

    def __init__(
        self, directory: Path, header: Header, *, full_seconds: float, coarse_seconds: float, max_bytes: int
    ) -> None:
        self._directory = directory
        self._header = header
        self._full_seconds = full_seconds
        self._max_bytes = max_bytes
        chunks, share = directory / "recorder", max_bytes // CHUNK_SHARE
        self._full = Series(
            chunks, "full", chunk_seconds=FULL_CHUNK_SECONDS, chunk_bytes=share, keep_seconds=full_seconds
        )
        self._coarse = Series(
            chunks, "coarse", chunk_seconds=COARSE_CHUNK_SECONDS, chunk_bytes=share, keep_seconds=coarse_seconds
        )
        self._shelf = Shelf(directory / "bundles", max_bytes // BUNDLES_SHARE)
        self._triggers = Triggers()
        self._incidents = Incidents()
        self._lock: int | None = None
        self._learned: Learned | None = None
        self._whole_is_told = False
        self._ages: Ages | None = None
        self._changes: list[Change] = []
        self._next_coarse = self._next_tidy = self._next_try = 0.0
        self._now = self._at = 0.0
        self._reason = _NOT_BEGUN
        self._counted, self._written, self._bundles = 0, 0, 0  # bytes when last counted, and since; files
        self._counts = {"states_total": 0, "dropped_total": 0, "torn_total": 0, "bundles_total": 0}
        self._last_bundle = ""

    def adopt(self, profile: str, policy: str) -> None:
        """Judgements are by another policy from now on; files that are begun say so."""
        self._header = replace(self._header, profile=profile, policy=policy)

    def take(self, state: AgentState, judgement: Judgement, learned: Learned | None) -> None:
        """Keep a judged state; ``learned``: what the judge has learned, where it is time to keep that, too."""
        self._learned = learned or self._learned
        self._now, self._at = state.monotonic, state.at
        if self._ages is None:
            self._ages = Ages(state)
        standing = self._triggers.standing(state.monotonic)
        changes = self._triggers.changes(state, judgement)
        self._incidents.happened(self._triggers.reasons(state, changes), state.monotonic)
        self._changes = (self._changes + list(changes))[-MOST_CHANGES:]
        if self._lock is None and state.monotonic < self._next_try:
            self._counts["dropped_total"] += 1
            return
        try:
            if self._lock is None:
                self._open()
            elif not os.fstat(self._lock).st_nlink:  # else all goes into files that nobody can find
                raise BundleError(f"{self._directory}: was removed while it was recorded to")
            self._keep(state, standing, changes)
            if learned is not None:
                self._keep_usuals(learned.whole)
            if why := self._incidents.due(state.monotonic):
                self._write_bundle(why)
            if state.monotonic >= self._next_tidy or self._counted + self._written > self._max_bytes:
                self._tidy(state.monotonic)
            self._tell("")
        except (OSError, BundleError) as error:
            self._failed(error)

    def bundle(self, seconds: float, why: str) -> Path:
        """Return a bundle of the last ``seconds``; who asked removes it. Raises OSError, or :class:`BundleError`."""
        if self._lock is None:
            raise BundleError(f"nothing is recorded: {self._reason}")
        if len(self._shelf.parts()) >= MOST_ASKED:
            raise BundleError("others still fetch what they have asked for; try again in some minutes")
        path = self._directory / "bundles" / f"asked-{time.time_ns()}{SUFFIX}{PART}"
        self._assemble(path, why, seconds)
        return path

    def close(self, usuals: bytes) -> None:
        """Write what is due and what the judge has learned, and end the files in order."""
        if self._lock is None:
            return
        try:
            self._keep_usuals(usuals)
            if why := self._incidents.ended():
                self._write_bundle(why)
            self._full.close()
            self._coarse.close()
        except (OSError, BundleError) as error:
            self._failed(error)
        self._unlock()

    # -- files ------------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        for folder in (self._directory, self._directory / "recorder", self._directory / "bundles"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._directory / "recorder" / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._shelf.clear()
            self._counts["torn_total"] += self._full.repair(self._now) + self._coarse.repair(self._now)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise BundleError(f"{self._directory}: another agent records there") from None
            raise
        self._lock = lock

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _keep(self, state: AgentState, standing: tuple[Change, ...], changes: tuple[Change, ...]) -> None:
        now, record = state.monotonic, encoded(state)
        self._append(self._full, now, standing, [record, *map(encoded, changes)])
        self._counts["states_total"] += 1
        if now >= self._next_coarse:
            self._append(self._coarse, now, standing, [record, *map(encoded, self._changes)])
            self._changes = []
            self._next_coarse = now + COARSE_SECONDS

    def _append(self, series: Series, now: float, standing: tuple[Change, ...], records: list[Raw]) -> None:
        if series.due(now):
            series.begin(replace(self._header, created_at=self._at), now)
            records = [*self._known(series), *map(encoded, standing), *records]
        self._written += series.append(records)

    def _known(self, series: Series) -> list[Raw]:
        """Return what a chunk begins with. What slow estimates rest on is in few: where an agent begins, and where the
        day before an incident may.
        """
        if self._learned is None:
            return []
        whole = series is self._coarse or not self._whole_is_told
        self._whole_is_told = self._whole_is_told or series is self._full
        return [(USUALS, self._learned.whole if whole else self._learned.lean)]

    def _keep_usuals(self, usuals: bytes) -> None:
        path = self._directory / BASELINES
        partial = path.with_suffix(PART)
        try:
            # Names of tenants are in it: it is the agent's alone, also where the directory is not.
            with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(usuals)
            partial.replace(path)
        except OSError:
            with suppress(OSError):
                partial.unlink()
            raise

    def _write_bundle(self, why: str) -> None:
        path = self._shelf.place(self._at, why)
        self._assemble(path, why, self._full_seconds)
        self._counts["bundles_total"] += 1
        self._last_bundle = str(path)
        self._next_tidy = 0.0
        logger.warning("%s: what happened is in %s", why, path)

    def _assemble(self, path: Path, why: str, seconds: float) -> None:
        header = replace(self._header, why=why, created_at=self._at)
        if self._ages is not None:
            since = self._now - seconds
            assemble(path, header, self._full.chunks(), self._coarse.chunks(), ages=self._ages, since=since)

    def _tidy(self, now: float) -> None:
        self._full.throw_away(now)
        self._coarse.throw_away(now)
        self._shelf.tidy()
        self._shelf.sweep(now)
        while (size := self._size()) > self._max_bytes:
            if not (self._coarse.throw_oldest() or self._full.throw_oldest()):
                break
        self._next_tidy, self._written = now + TIDY_SECONDS, 0
        self._counted, self._bundles = size, len(self._shelf.bundles())

    def _size(self) -> int:
        chunks = (*self._full.chunks(), *self._coarse.chunks())
        return sum(chunk.size for chunk in chunks) + sum(size for _, size in self._shelf.bundles())

    # -- what is said of it -----------------------------------------------------------------------------------------

    def _failed(self, error: OSError | BundleError) -> None:
        text = error.strerror or str(error) if isinstance(error, OSError) else str(error)
        self._counts["dropped_total"] += 1
        for series in (self._full, self._coarse):
            with suppress(OSError):
                series.close()
        self._unlock()
        self._next_try = self._now + RETRY_SECONDS
        where = error.filename2 or error.filename if isinstance(error, OSError) else None
        self._tell(text if isinstance(error, BundleError) else f"{where or self._directory}: {text}")

    def _tell(self, reason: str) -> None:
        if reason and reason != self._reason:
            logger.warning("nothing is recorded: %s; the agent goes on", reason)
        if not reason and self._reason not in ("", _NOT_BEGUN):
            logger.info("it is recorded again: %s", self._directory)
        self._reason = reason

    @property
    def state(self) -> RecorderState:
        """What it is doing; may be asked for by any thread."""
        return RecorderState(
            directory=str(self._directory),
            recording=not self._reason,
            reason=self._reason,
            bytes=self._counted + self._written,
            max_bytes=self._max_bytes,
            bundles=self._bundles,
            last_bundle=self._last_bundle,
            **self._counts,
        )
