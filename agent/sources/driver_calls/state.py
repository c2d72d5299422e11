"""How long the driver's memory calls took, as immutable values."""

from __future__ import annotations

import msgspec


class DriverCallsState(msgspec.Struct, frozen=True, kw_only=True):
    """The driver's memory calls since the source began."""
