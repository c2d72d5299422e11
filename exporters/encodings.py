"""Which encoding of a body a client takes."""

from __future__ import annotations

from collections.abc import Iterable

GZIP = frozenset({"gzip", "x-gzip"})


def takes_gzip(headers: Iterable[str]) -> bool:
    """Return whether a client with these Accept-Encoding ``headers`` takes gzip, and not less gladly than no encoding.

    What can't be read is taken for a no: a plain body is right for everybody.
    """
    wishes: dict[str, float] = {}
    for header in headers:
        for part in header.split(","):
            name, *parameters = (piece.strip().lower() for piece in part.split(";"))
            if name:
                wishes["gzip" if name in GZIP else name] = _quality(parameters)
    gzip = wishes.get("gzip", wishes.get("*", 0.0))
    return gzip > 0.0 and gzip >= wishes.get("identity", 0.0)


def _quality(parameters: list[str]) -> float:
    if not parameters:
        return 1.0
    name, _, value = parameters[0].partition("=")
    try:
        quality = float(value) if name.strip() == "q" else 0.0
    except ValueError:
        return 0.0
    return quality if 0.0 <= quality <= 1.0 else 0.0
