"""What engines without hooks say of themselves, as immutable values."""

from __future__ import annotations

import msgspec


class ScrapedState(msgspec.Struct, frozen=True, kw_only=True):
    """All engines that are scraped."""
