"""What is wrong with a log."""

from __future__ import annotations

from agent.errors import KvtideError


class ReplayError(KvtideError):
    """The log can't be judged; the text is one line that says what is missing and how to give it."""
