"""Cases of GPUs and their allocators."""

from __future__ import annotations

from exporters import catalogue as c
from tests.unit.alerts.cases.base import ESTIMATE, GIB, E, G, judged, pair
from tests.unit.alerts.promtool import Case, between, of, ramp, verdict

PROCESS = {"engine": "m", "role": "worker", "rank": "0", "device": "cuda:0"}
DEVICE: tuple[Case, ...] = (
    *judged("KvtideOutOfMemory", "oom", tier="page", process="worker/0"),
    Case(
        "KvtideOutOfMemory",
        "a process of no engine",
        [verdict("oom", engine="", process="train")],
        labels={"engine": "none", "gpu": "none"},
    ),
    Case("KvtideOutOfMemory", "what only words say", [verdict("oom", "warn", process="worker/0")], fires=False),
    *pair(
        "KvtideAllocatorFragmented",
        (
            pieces := [
                of(c.ALLOCATOR_FRAGMENTATION_RATIO, 0.5, **PROCESS),
                of(c.ALLOCATOR_INACTIVE_BYTES, 2 * GIB, **PROCESS),
                of(c.ALLOCATOR_RETRIES_TOTAL, ramp(0, 0.02), **PROCESS),
            ]
        ),
        {
            "little is free": [pieces[0], of(c.ALLOCATOR_INACTIVE_BYTES, GIB / 2, **PROCESS), pieces[2]],
            "nobody had to try again": [*pieces[:2], of(c.ALLOCATOR_RETRIES_TOTAL, 7, **PROCESS)],
            "start-up": [
                of(c.ALLOCATOR_FRAGMENTATION_RATIO, between(0.9, 0, 240, 0.1), **PROCESS),
                *pieces[1:],
            ],
        },
        **E,
    ),
    *judged(
        "KvtideAllocatorGrows",
        "allocator_growth",
        of(c.ALLOCATOR_USE, 0.9, engine="m", role="worker", rank="0", gpu="0"),
        process="worker/0",
        gpu="",
    )[1:],
    Case(
        "KvtideAllocatorGrows",
        "fires",
        [
            verdict("allocator_growth", "warn", process="worker/0"),
            of(c.ALLOCATOR_USE, 0.9, engine="m", role="worker", rank="0", gpu="0"),
            of(c.ALLOCATOR_USE, 0.9, engine="m", role="worker", rank="1", gpu="1"),
        ],
        labels=E | G,
    ),
    Case(
        "KvtideAllocatorGrows",
        "a trainer",
        [
            verdict("allocator_growth", "warn", engine="", process="train"),
            of(c.ALLOCATOR_USE, 0.9, process="train", role="torch", rank="0", gpu="3"),
        ],
        labels={"engine": "none", "gpu": "3"},
    ),
    *judged("KvtideDeviceGrows", "device_growth", of(c.GPU_USE, 0.95, **G), engine="", gpu="0"),
    *pair(
        "KvtideDeviceFull",
        (
            growing := [
                of(c.GPU_USE, 0.9, **G),
                of(c.GPU_SLOW, 1e-5, **G, bound="low"),
                of(c.GPU_GROWTH, 2e-5, **G, **ESTIMATE),
            ]
        ),
        {
            "minutes do not agree": [*growing[:2], of(c.GPU_GROWTH, 1e-7, **G, **ESTIMATE)],
            "hours do not agree": [growing[0], of(c.GPU_SLOW, -1e-6, **G, bound="low"), growing[2]],
            "much is free": [of(c.GPU_USE, 0.5, **G), *growing[1:]],
            "warm-up": [of(c.GPU_USE, 0.9, **G), of(c.GPU_GROWTH, 1e-3, **G, **ESTIMATE)],
            "a pool that was preallocated": [of(c.GPU_USE, 0.97, **G), of(c.GPU_GROWTH, 0, **G, **ESTIMATE)],
        },
        **G,
    ),
    *judged("KvtideDeviceFullSoon", "device_growth", of(c.GPU_USE, 0.97, **G), tier="page", engine="", gpu="0"),
    *judged("KvtideOverBudget", "over_budget", of(c.GPU_USE, 0.99, **G), engine="", gpu="0"),
    *judged("KvtideDeadProcessMemory", "dead_process_memory", of(c.DEAD_PROCESS_MEMORY, 9e9, **G), engine="", gpu="0"),
    *judged("KvtideGpuLost", "gpu_lost", tier="page", engine="", gpu="0"),
    *judged("KvtideRanksUneven", "rank_imbalance"),
    *judged("KvtideSleepResidue", "sleep_residue"),
)
