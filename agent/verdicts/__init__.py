"""Verdicts: detectors judge a state and its signals, and a track turns what they say over time into none, suspect,
confirmed, resolved.

Adding one: a file with a :class:`Detector` (one engine at a time) or a :class:`NodeDetector`, a line in
:data:`DETECTORS` or :data:`NODE_DETECTORS`, a test that fires and one that stays quiet.
"""

from __future__ import annotations

from agent.verdicts.allocator_fragmentation import AllocatorFragmentation
from agent.verdicts.allocator_growth import AllocatorGrowth
from agent.verdicts.bad_metric import BadMetric
from agent.verdicts.base import Detector, NodeDetector
from agent.verdicts.config_mismatch import ConfigMismatch
from agent.verdicts.dead_process_memory import DeadProcessMemory
from agent.verdicts.device_growth import DeviceGrowth
from agent.verdicts.engine_missing import EngineMissing
from agent.verdicts.eviction_storm import EvictionStorm
from agent.verdicts.gpu_lost import GpuLost
from agent.verdicts.host_growth import HostGrowth
from agent.verdicts.kv_delayed_free import KvDelayedFree
from agent.verdicts.kv_orphan import KvOrphan
from agent.verdicts.kv_over_freed import KvOverFreed
from agent.verdicts.kv_pinned import KvPinned
from agent.verdicts.kv_pressure import KvPressure
from agent.verdicts.kv_stall import KvStall
from agent.verdicts.oom import Oom
from agent.verdicts.over_budget import OverBudget
from agent.verdicts.preemption_thrash import PreemptionThrash
from agent.verdicts.rank_imbalance import RankImbalance
from agent.verdicts.restart_loop import RestartLoop
from agent.verdicts.sensor_stale import SensorStale
from agent.verdicts.sleep_residue import SleepResidue
from agent.verdicts.spec_residue import SpecResidue
from agent.verdicts.tenant_surge import TenantSurge
from agent.verdicts.workload_shift import WorkloadShift

# In the order in which verdicts are shown: what harms most comes first.
DETECTORS: tuple[Detector, ...] = (
    KvOverFreed(),
    KvStall(),
    KvOrphan(),
    PreemptionThrash(),
    KvPressure(),
    KvDelayedFree(),
    EvictionStorm(),
    KvPinned(),
    SpecResidue(),
    WorkloadShift(),
)
NODE_DETECTORS: tuple[NodeDetector, ...] = (
    GpuLost(),
    EngineMissing(),
    Oom(),
    RestartLoop(),
    ConfigMismatch(),
    OverBudget(),
    HostGrowth(),
    DeviceGrowth(),
    AllocatorGrowth(),
    AllocatorFragmentation(),
    TenantSurge(),
    DeadProcessMemory(),
    SleepResidue(),
    RankImbalance(),
    SensorStale(),
    BadMetric(),
)
