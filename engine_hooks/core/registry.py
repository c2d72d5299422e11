"""The observers of an engine, one per section of the Detail; each is there unless its engine lacks what it needs."""

from __future__ import annotations

from engine_hooks.core.allocation import AllocationObserver
from engine_hooks.core.blame import Blame
from engine_hooks.core.compaction.counts import CompactionObserver
from engine_hooks.core.delayed import DelayedFrees
from engine_hooks.core.encoder import EncoderObserver
from engine_hooks.core.groups import GroupsObserver
from engine_hooks.core.observers import Observer
from engine_hooks.core.pinned import Pinned
from engine_hooks.core.pools import Pools
from engine_hooks.core.speculation import SpeculationObserver
from engine_hooks.core.tenants import TenantObserver
from engine_hooks.core.tiers.observer import TiersObserver
from engine_hooks.core.waiting import WaitingObserver
from engine_hooks.core.work import WorkObserver

OBSERVERS: tuple[type[Observer], ...] = (
    AllocationObserver,
    Blame,
    CompactionObserver,
    DelayedFrees,
    EncoderObserver,
    GroupsObserver,
    Pinned,
    Pools,
    SpeculationObserver,
    TenantObserver,
    TiersObserver,
    WaitingObserver,
    WorkObserver,
)
