"""How long the driver's memory calls took, as immutable values."""

from __future__ import annotations

import msgspec

from engine_hooks.detail import Histogram


class CallRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One function, as the processes of one engine called it.

    ``seconds`` and ``failures_total`` count since the source began. ``recent_calls`` are those of the last five
    minutes, p50 and p99 their quantiles: the upper bound of the bucket that holds them, so never too low but where that
    is the last, open one; None without calls.
    """

    engine: str
    call: str
    seconds: Histogram
    failures_total: int
    recent_calls: int
    recent_p50_seconds: float | None
    recent_p99_seconds: float | None


class DriverCallsState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The driver's memory calls. ``libraries``: files that are traced, as their processes see them.

    ``attached``: probes are in place; ``reason`` says why nothing is traced. ``restarts``: how often tracing began
    again: calls meanwhile are not in the counts.
    """

    calls: tuple[CallRow, ...] = ()
    libraries: tuple[str, ...] = ()
    attached: bool = False
    reason: str = ""
    restarts: int = 0
