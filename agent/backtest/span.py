"""What people write for a stretch of time: ``2h``, ``90s``, ``2026-11-30T04:00..2026-11-30T06:00``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from agent.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,3})?[smhdw])+")
_PART = re.compile(r"([0-9.]+)([smhdw])")
_LARGEST = 1e11  # Unix seconds: the year 5138


class Span(NamedTuple):
    """From ``start`` to ``end``, Unix seconds."""

    start: float
    end: float


def seconds_of(text: str, option: str) -> float:
    """Return the seconds that ``text`` says, such as 15s, 2h or 1h30m; raises :class:`ConfigError`."""
    seconds = 0.0
    if _DURATION.fullmatch(text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    if not 0 < seconds < _LARGEST:
        raise ConfigError(f"{option}: {text!r}: must be a duration such as 15s, 90m, 2h, 1h30m or 14d")
    return seconds


def span_of(text: str, now: float) -> Span:
    """Return the span that ``text`` says: a duration that ends now, or START..END; raises :class:`ConfigError`.

    START and END are ISO 8601 (local unless they say otherwise), Unix seconds, or ``now``.
    """
    if ".." not in text:
        return Span(now - seconds_of(text, "--range"), now)
    first, _, last = text.partition("..")
    start, end = _moment(first, now), _moment(last, now)
    if start >= end:
        raise ConfigError(f"--range: {text!r}: its start must lie before its end")
    return Span(start, end)


def _moment(text: str, now: float) -> float:
    text = text.strip()
    if text == "now":
        return now
    try:
        moment = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        moment = -1.0
    if not 0 <= moment < _LARGEST:
        raise ConfigError(f"--range: {text!r}: must be like 2026-11-30T04:00, 2026-11-30T04:00Z, 1764475200 or now")
    return moment


def shown(at: float) -> str:
    """Return a moment for people, in UTC."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # before the year 1, where a monotonic clock was larger than Unix's
        return f"{at:g} s"
