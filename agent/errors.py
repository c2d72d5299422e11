"""Errors that end a command: one line for the person, one exit code for the script.

0: done. 1: it could not be done (no agent there, a port in use). 2: what was asked or configured is wrong.
"""

from __future__ import annotations

from typing import ClassVar


class KvtideError(Exception):
    """Base of all errors that a user may see: the text is one line that says what, where and the remedy."""

    exit_code: ClassVar[int] = 1


class ConfigError(KvtideError):
    """A setting is wrong; the text names its key, its value and what is allowed."""

    exit_code: ClassVar[int] = 2
