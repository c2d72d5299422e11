"""All faults by kind."""

from __future__ import annotations

from engine_hooks.simulator.faults.base import Plant
from engine_hooks.simulator.faults.double_free import DoubleFree
from engine_hooks.simulator.faults.flows import (
    ContextShift,
    EvictionStorm,
    LongTail,
    PreemptionThrash,
    Stall,
    TenantSurge,
)
from engine_hooks.simulator.faults.orphans import (
    AbortForgets,
    BurstLeak,
    SharedPrefix,
    SlowLeak,
    SpecResidue,
    Staircase,
)
from engine_hooks.simulator.faults.transfers import AbortLoading, DelayedFree, UnknownPin

FAULTS: dict[str, type[Plant]] = {
    "orphan": AbortForgets,
    "slow_leak": SlowLeak,
    "staircase": Staircase,
    "burst_leak": BurstLeak,
    "shared_prefix": SharedPrefix,
    "spec_residue": SpecResidue,
    "double_free": DoubleFree,
    "delayed_free": DelayedFree,
    "abort_loading": AbortLoading,
    "unknown_pin": UnknownPin,
    "preemption_thrash": PreemptionThrash,
    "tenant_surge": TenantSurge,
    "eviction_storm": EvictionStorm,
    "stall": Stall,
    "context_shift": ContextShift,
    "long_tail": LongTail,
}
