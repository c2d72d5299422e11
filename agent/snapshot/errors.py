"""What is wrong with a snapshot file."""

from __future__ import annotations

from agent.errors import KvtideError


class SnapshotError(KvtideError):
    """The file can't be read; the text is one line without the file's name, which the command puts before it."""
