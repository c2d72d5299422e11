"""Verdicts: detectors judge a state, and a track turns what they say over time into none, suspect, confirmed,
resolved.

Adding one: a file with a :class:`Detector`, a line in :data:`DETECTORS`, a test that fires and one that stays quiet.
"""

from __future__ import annotations

from agent.verdicts.base import Detector
from agent.verdicts.kv_orphan import KvOrphan

DETECTORS: tuple[Detector, ...] = (KvOrphan(),)
