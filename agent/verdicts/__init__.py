"""Verdicts: detectors judge a state and its signals, and a track turns what they say over time into none, suspect,
confirmed, resolved.

Adding one: a file with a :class:`Detector` (one engine at a time) or a :class:`NodeDetector`, a line in
:data:`DETECTORS` or :data:`NODE_DETECTORS`, a test that fires and one that stays quiet.
"""

from __future__ import annotations

from agent.verdicts.base import Detector, NodeDetector
from agent.verdicts.kv_delayed_free import KvDelayedFree
from agent.verdicts.kv_orphan import KvOrphan
from agent.verdicts.kv_over_freed import KvOverFreed
from agent.verdicts.kv_pinned import KvPinned
from agent.verdicts.kv_stall import KvStall
from agent.verdicts.spec_residue import SpecResidue

# In the order in which verdicts are shown: what harms most comes first.
DETECTORS: tuple[Detector, ...] = (
    KvOverFreed(),
    KvStall(),
    KvOrphan(),
    KvDelayedFree(),
    KvPinned(),
    SpecResidue(),
)
NODE_DETECTORS: tuple[NodeDetector, ...] = ()
