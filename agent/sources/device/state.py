"""What is known of the GPUs, as immutable values."""

from __future__ import annotations

import msgspec


class DevicesState(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs of this node."""
