"""Numbers for people. Only screens and sentences use these; everything else keeps base units."""

from __future__ import annotations


def human_bytes(size: float) -> str:
    """Return ``size`` with a binary unit: ``1.5 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_seconds(seconds: float) -> str:
    """Return a duration as people say it: ``0.4 s``, ``12 s``, ``3 min``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
