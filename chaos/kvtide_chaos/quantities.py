"""Quantities as people write them: ``10MB/s``, ``1GiB``, ``2 blocks/s``, ``5m``."""

from __future__ import annotations

import re

_BYTES = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_FORM = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class QuantityError(ValueError):
    """A quantity that can't be read; the text says which, and what is allowed."""


def byte_count(text: str | int) -> int:
    """Return bytes for ``1GiB``, ``10MB`` (powers of 1,000) or a plain number; at least one byte."""
    number, unit = _split(str(text), "a size such as 10MB or 1GiB")
    factor = _BYTES.get(unit.upper() or "B")
    if factor is None or number * factor < 1:
        raise QuantityError(f"{text!r} is no size: write a number above 0 and one of B, kB, MB, GB, KiB, MiB, GiB")
    return int(number * factor)


def bytes_per_second(text: str) -> float:
    """Return bytes per second for ``10MB/s`` or ``1GiB/m``."""
    amount, _, per = text.partition("/")
    return byte_count(amount) / _period(text, per)


def count_per_second(text: str, unit: str) -> float:
    """Return how many ``unit`` per second ``2 blocks/s``, ``30/m`` or ``5blocks/s`` mean; above 0."""
    amount, _, per = text.partition("/")
    number, name = _split(amount, f"a rate such as 2 {unit}/s")
    if name not in ("", unit, unit.removesuffix("s")) or number <= 0:
        raise QuantityError(f"{text!r} is no rate of {unit}: write for example 2{unit}/s or 30{unit}/m")
    return number / _period(text, per)


def seconds(text: str | float) -> float:
    """Return seconds for ``90``, ``90s``, ``5m``, ``1h`` or ``500ms``; above 0."""
    number, unit = _split(str(text), "a time such as 30s or 5m")
    factor = _SECONDS.get(unit or "s")
    if factor is None or number <= 0:
        raise QuantityError(f"{text!r} is no time: write a number above 0 and one of ms, s, m, h")
    return number * factor


def _period(text: str, per: str) -> float:
    if per not in ("s", "m", "h"):
        raise QuantityError(f"{text!r} is no rate: it must end with /s, /m or /h")
    return _SECONDS[per]


def _split(text: str, wanted: str) -> tuple[float, str]:
    found = _FORM.fullmatch(text)
    if found is None:
        raise QuantityError(f"{text!r} can't be read: {wanted} is wanted")
    return float(found[1]), found[2]
