"""Whose a request is: the tenant and the session that its front end marked it with, and its name for people."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

# The key in ``sampling_params.extra_args`` under which the front end's marks travel to the scheduler.
MARKS_KEY = "kvtide"
NO_TENANT = "none"
HASH_CHARACTERS = 12
MAX_NAME = 64


@dataclass(frozen=True, slots=True)
class Marks:
    """``tenant``: never empty, ``none`` when nobody said. ``session``: empty when the request belongs to none."""

    tenant: str = NO_TENANT
    session: str = ""


def marks_of(request: Any) -> Marks:
    """Return the marks of a scheduler's request: those of the front end, else what the request itself carries."""
    extra = getattr(getattr(request, "sampling_params", None), "extra_args", None)
    marks = extra.get(MARKS_KEY) if isinstance(extra, dict) else None
    if not isinstance(marks, dict):
        marks = {}
    lora = getattr(getattr(request, "lora_request", None), "lora_name", None)
    tenant = marks.get("tenant") or lora or NO_TENANT
    session = marks.get("session") or getattr(request, "session_id", None) or ""
    return Marks(tenant=printable(str(tenant)), session=printable(str(session)) if session else "")


def printable(text: str) -> str:
    """Return ``text`` as a label value: printable ASCII, at most 64 characters."""
    return "".join(c if " " <= c <= "~" else "_" for c in text[:MAX_NAME])


def short_hash(text: str) -> str:
    """Return twelve hexadecimal digits that stand for ``text``: the same for the same text on every node."""
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=HASH_CHARACTERS // 2).hexdigest()
