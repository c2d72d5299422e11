"""What is known of processes, cgroups and the host, as immutable values."""

from __future__ import annotations

import msgspec


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """This host and the processes on it that concern us."""
