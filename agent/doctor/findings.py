"""What a check has found."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine_hooks import __version__

# By its file, not by its name: what a package index offers under that may be anybody's.
WHEEL = f"kvtide-{__version__}-py3-none-any.whl"
# ok: as it should be. note: not there, and that may be wanted. warn: something is lost. bad: it does not work.
Level = Literal["ok", "note", "warn", "bad"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """``check``: what was looked at; ``mend``: the command or setting that changes it, empty where nothing has to."""

    check: str
    level: Level
    text: str
    mend: str = ""


def ok(check: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding(check=check, level="ok", text=text)


def note(check: str, text: str, mend: str = "") -> Finding:
    """Return what is not there, and may be wanted so."""
    return Finding(check=check, level="note", text=text, mend=mend)


def warn(check: str, text: str, mend: str) -> Finding:
    """Return that something is lost."""
    return Finding(check=check, level="warn", text=text, mend=mend)


def bad(check: str, text: str, mend: str) -> Finding:
    """Return that something does not work."""
    return Finding(check=check, level="bad", text=text, mend=mend)
