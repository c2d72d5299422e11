"""From a file to a snapshot."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.snapshot.errors import SnapshotError
from agent.snapshot.load import DEFAULT_LIMIT, load
from agent.snapshot.model import Snapshot
from agent.snapshot.parse import parse


def read(path: Path, limit: int = DEFAULT_LIMIT) -> Snapshot:
    """Return the snapshot in the file at ``path``; raises :class:`SnapshotError` with one line that names the file."""
    try:
        with _collector_off():
            raw, size, shared = load(path, limit)
            return parse(raw, size, shared)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from None


@contextmanager
def _collector_off() -> Iterator[None]:
    """Hold the garbage collector back: it would look through millions of new objects again and again."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
