"""Quantiles of what a histogram counted between two moments."""

from __future__ import annotations

from engine_hooks.detail import Histogram


def between(now: Histogram | None, before: Histogram | None) -> tuple[tuple[float, ...], list[int]] | None:
    """Return the bounds and what was counted meanwhile; None where the histogram is not the same, or began anew."""
    if now is None or before is None or now.bounds != before.bounds or len(now.counts) != len(before.counts):
        return None
    counts = [late - early for late, early in zip(now.counts, before.counts, strict=True)]
    return None if any(count < 0 for count in counts) else (now.bounds, counts)


def quantile(bounds: tuple[float, ...], counts: list[int], share: float, least: int = 1) -> float | None:
    """Return the value below which ``share`` of the counts lie; None for fewer than ``least`` counts.

    Inside a bucket values are taken as spread evenly, as Prometheus does; what lies above the last bound is given as
    that bound, which is the least that it can be.
    """
    total = sum(counts)
    if total < max(1, least):
        return None
    rank = share * total
    below, lower = 0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below += count
        lower = bound
    return lower


def share_above(bounds: tuple[float, ...], counts: list[int], limit: float, least: int = 1) -> float | None:
    """Return the share of the counts that lie above ``limit``, 0..1; None for fewer than ``least`` counts.

    A bucket that ``limit`` cuts is taken as spread evenly.
    """
    total = sum(counts)
    if total < max(1, least):
        return None
    above, lower = float(counts[-1]), 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if bound > max(limit, lower):
            above += count * (bound - max(lower, limit)) / (bound - lower)
        lower = bound
    return above / total
