"""The levers of an engine core; each is there unless its engine lacks what it needs."""

from __future__ import annotations

from engine_hooks.core.levers.active_cap import ActiveCap
from engine_hooks.core.levers.batch_tokens import BatchTokens
from engine_hooks.core.levers.compact import Compact
from engine_hooks.core.levers.context import CoreLever
from engine_hooks.core.levers.end_zombies import EndZombies
from engine_hooks.core.levers.enforce_admission import EnforceAdmission
from engine_hooks.core.levers.evict_idle import EvictIdle
from engine_hooks.core.levers.hold_hot import HoldHot
from engine_hooks.core.levers.pause import Pause
from engine_hooks.core.levers.preempt import Preempt
from engine_hooks.core.levers.reclaim_delayed import ReclaimDelayed
from engine_hooks.core.levers.reclaim_orphans import ReclaimOrphans
from engine_hooks.core.levers.reset_prefix import ResetPrefix
from engine_hooks.core.levers.sleep import Sleep
from engine_hooks.core.levers.trim import Trim
from engine_hooks.core.levers.watermark import Watermark

LEVERS: tuple[type[CoreLever], ...] = (
    Watermark,
    ActiveCap,
    BatchTokens,
    EvictIdle,
    HoldHot,
    ReclaimOrphans,
    Compact,
    Trim,
    Preempt,
    Pause,
    ResetPrefix,
    EndZombies,
    ReclaimDelayed,
    Sleep,
    EnforceAdmission,
)
