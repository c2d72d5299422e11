"""What may go wrong with the journal."""

from __future__ import annotations

from agent.errors import KvtideError


class JournalError(KvtideError):
    """The journal can't be read or written; the text says why. Nothing is done then, and observing goes on."""
