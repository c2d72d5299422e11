"""What is wrong with a bundle."""

from __future__ import annotations

from agent.errors import KvtideError


class BundleError(KvtideError):
    """The file can't be read as a bundle, or can't be written; the text is one line that says why."""
