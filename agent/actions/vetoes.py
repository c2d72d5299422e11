"""Vetoes: a person says that a lever (or all) must not be pulled on an engine (or on all) for some time."""

from __future__ import annotations

from collections.abc import Sequence

from agent.subject import Value

ANY = "*"


class Veto(Value, frozen=True, kw_only=True):
    """``lever`` and ``engine``: which, ``*`` for all. ``until``: Unix seconds; ``by``: who said so."""

    lever: str
    engine: str
    until: float
    by: str = "a person"


def vetoed(vetoes: Sequence[Veto], lever: str, engine: str, now: float) -> Veto | None:
    """Return the veto that stands longest against a lever on an engine; None without one."""
    found = [
        each for each in vetoes if each.until > now and each.lever in (ANY, lever) and each.engine in (ANY, engine)
    ]
    return max(found, key=lambda each: each.until, default=None)
