"""What the flight recorder is doing, for the faces."""

from __future__ import annotations

import msgspec


class RecorderState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``recording`` is false for ``reason``. Counts are since the agent started.

    ``states_total``: judged states kept at full rate; ``dropped_total``: those that could not be; ``torn_total``: files
    of an earlier agent that were cut off in the middle of a state. ``bytes``: on disk, bundles included, of
    ``max_bytes`` at most. ``bundles``: files of incidents; ``bundles_total``: written.
    """

    directory: str
    recording: bool
    reason: str
    states_total: int = 0
    dropped_total: int = 0
    torn_total: int = 0
    bytes: int = 0
    max_bytes: int = 0
    bundles: int = 0
    bundles_total: int = 0
    last_bundle: str = ""
