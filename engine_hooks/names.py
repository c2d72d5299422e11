"""Names that come from outside, made fit for labels, and hashes that stand for what must not be shown."""

from __future__ import annotations

import hashlib

NO_TENANT = "none"
HASH_CHARACTERS = 12
MAX_NAME = 64
_KEPT = MAX_NAME - HASH_CHARACTERS - 1


def printable(text: str) -> str:
    """Return ``text`` as a label value: printable ASCII, at most 64 characters.

    A longer one keeps its beginning and ends in a hash, so that two long names stay two.
    """
    if len(text) > MAX_NAME:
        text = f"{text[:_KEPT]}~{short_hash(text)}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if " " <= c <= "~" else "_" for c in text)


def shown(text: str) -> str:
    """Return ``text`` fit for a frame: what is no printable character, as a client's words may hold, becomes ``?``."""
    return "".join(c if c.isprintable() else "?" for c in text)


def short_hash(text: str) -> str:
    """Return twelve hexadecimal digits that stand for ``text``: the same for the same text on every node.

    ``printf %s TEXT | b2sum -l 48`` prints the same.
    """
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=HASH_CHARACTERS // 2).hexdigest()
