"""What the agent's own sources say of a node, in the smallest form that is whole: devices, processes, calls, pages."""

from __future__ import annotations

from typing import Any

from agent.sources.base import SourceState
from agent.sources.device.state import (
    Bar1,
    DevicesState,
    EccErrors,
    GpuMemory,
    GpuProcess,
    GpuProcesses,
    GpuState,
    RemappedRows,
    RetiredPages,
    Utilisation,
    Xid,
)
from agent.sources.driver_calls.program import BOUNDS
from agent.sources.driver_calls.state import CallRow, DriverCallsState
from agent.sources.host.state import (
    CgroupState,
    ChildrenState,
    DeadHolder,
    Growth,
    HostState,
    KilledState,
    Place,
    PressureState,
    ProcessState,
    RestartState,
)
from agent.sources.scrape.state import PassedOver, ScrapedEngine, ScrapedState
from agent.waterfall.state import Part, Waterfall
from engine_hooks.detail import Histogram

MIB = 1024 * 1024


def make_source(**changes: Any) -> SourceState:
    values: dict[str, Any] = {
        "source": "device",
        "up": True,
        "reason": "",
        "reads": 60,
        "failures": 1,
        "read_seconds": 0.004,
        "age_seconds": 0.5,
    }
    return SourceState(**values | changes)


def make_gpu(gpu: str, **changes: Any) -> GpuState:
    """A healthy H100 with 60 of 80 GiB used."""
    values: dict[str, Any] = {
        "gpu": gpu,
        "uuid": f"GPU-{gpu}",
        "name": "NVIDIA H100 80GB HBM3",
        "index": int(gpu.partition("/")[0]),
        "memory": GpuMemory(total=81920 * MIB, used=61440 * MIB, free=19880 * MIB, reserved=600 * MIB),
        "processes": GpuProcesses(rows=(GpuProcess(pid=7, used_bytes=61000 * MIB, kind="C"),), count=1),
        "bar1": Bar1(total=131072 * MIB, used=8 * MIB),
        "utilisation": Utilisation(gpu=0.9, memory=0.5),
        "throttle": ("sw_power_cap",),
        "ecc": EccErrors(corrected=1, uncorrected=2, corrected_ever=3, uncorrected_ever=4),
        "remapped_rows": RemappedRows(corrected=1, uncorrected=2, pending=True, failed=False),
        "retired_pages": RetiredPages(single_bit=5, double_bit=6, pending=False),
        "compute_mode": "default",
        "mig": False,
        "xids": (Xid(code=31, count=2, last_at=1_700_000_900.0),),
    }
    return GpuState(**values | changes)


def make_devices(*gpus: GpuState, **changes: Any) -> DevicesState:
    """A healthy GPU and one that is lost, unless ``gpus`` are given."""
    lost = GpuState(gpu="1", uuid="GPU-1", name="NVIDIA H100 80GB HBM3", index=1, lost="gone", xids=())
    values: dict[str, Any] = {"driver": "580.95.05", "cuda_driver": "13.0", "gpus": gpus or (make_gpu("0"), lost)}
    return DevicesState(**values | changes)


def make_process(**changes: Any) -> ProcessState:
    """The engine core of engine m, in a burstable pod; sizes that are all different."""
    values: dict[str, Any] = {
        "engine": "m",
        "role": "core",
        "rank": 0,
        "pid": 4321,
        "inner_pid": 21,
        "pid_namespace": 4026532001,
        "started_at": 1_700_000_000.0,
        "resident_bytes": 5000 * MIB,
        "anonymous_bytes": 4000 * MIB,
        "file_bytes": 600 * MIB,
        "shared_bytes": 400 * MIB,
        "swap_bytes": 3 * MIB,
        "locked_bytes": 5 * MIB,
        "pinned_bytes": 7 * MIB,
        "proportional_bytes": 4500 * MIB,
        "unique_bytes": 4200 * MIB,
        "proportional_age_seconds": 12.0,
        "threads": 90,
        "open_files": 210,
        "oom_score_adj": 500,
        "major_faults": 17,
        "shm_size_bytes": 64 * MIB,
        "shm_used_bytes": 9 * MIB,
        "cgroup": "/kubepods.slice/pod.slice/a.scope",
        "place": Place(runtime="containerd", container="c" * 64, pod="u-1", qos="burstable"),
        "growth": Growth(bytes_per_second=1000.0, ratio_per_minute=0.0001, seconds=600.0),
    }
    return ProcessState(**values | changes)


def make_cgroup(**changes: Any) -> CgroupState:
    """The cgroup of engine m: 6000 MiB, in a pod that holds 7000 of 8000 MiB."""
    values: dict[str, Any] = {
        "engine": "m",
        "role": "core",
        "rank": 0,
        "path": "/kubepods.slice/pod.slice/a.scope",
        "current_bytes": 6000 * MIB,
        "working_set_bytes": 5500 * MIB,
        "swap_bytes": 2 * MIB,
        "limit_bytes": 8000 * MIB,
        "limit_of": "/kubepods.slice/pod.slice",
        "limit_current_bytes": 7000 * MIB,
        "high_bytes": 7900 * MIB,
        "high_of": "/kubepods.slice/pod.slice",
        "events": {"low": 0, "high": 4, "max": 3, "oom": 2, "oom_kill": 1},
        "parts": {"anon": 5100 * MIB, "file": 800 * MIB},
        "pressure": PressureState(some_ratio=0.25, full_ratio=0.125, some_seconds=12.5, full_seconds=6.25),
    }
    return CgroupState(**values | changes)


def make_killed(**changes: Any) -> KilledState:
    """The worker of engine m, killed in its own cgroup."""
    values: dict[str, Any] = {
        "engine": "m",
        "role": "worker",
        "rank": 1,
        "pid": 88,
        "at": 1_700_000_900.0,
        "counted_by": "/a",
        "certain": True,
    }
    return KilledState(**values | changes)


def make_host(**changes: Any) -> HostState:
    """One process, its cgroup, two restarts, and a dead pid that holds 5 GiB of GPU 0."""
    values: dict[str, Any] = {
        "processes": (make_process(),),
        "children": (ChildrenState(engine="m", processes=2, resident_bytes=150 * MIB),),
        "cgroups": (make_cgroup(),),
        "restarts": (RestartState(engine="m", restarts=2),),
        "killed": (make_killed(),),
        "kills_total": {"m": 1, "n": 0},
        "dead": (DeadHolder(gpu="0", pid=99, used_bytes=5120 * MIB),),
        "dead_bytes": {"0": 5120 * MIB, "1": 0},
        "memory": {"total": 64000 * MIB, "available": 20000 * MIB, "swap_total": 0, "swap_free": 0, "locked": 11 * MIB},
        "shm": {"size": 32000 * MIB, "used": 10 * MIB},
        "oom_kills_total": 1,
        "host_pids": True,
    }
    return HostState(**values | changes)


def make_call(**changes: Any) -> CallRow:
    """Ten calls, of them one of half a second that failed."""
    counts = [0] * (len(BOUNDS) + 1)
    counts[BOUNDS.index(0.001)], counts[BOUNDS.index(0.5)] = 9, 1
    values: dict[str, Any] = {
        "engine": "m",
        "call": "cuMemCreate",
        "seconds": Histogram(bounds=BOUNDS, counts=tuple(counts), sum=0.509),
        "failures_total": 1,
        "recent_calls": 10,
        "recent_p50_seconds": 0.001,
        "recent_p99_seconds": 0.5,
    }
    return CallRow(**values | changes)


def make_driver_calls(*calls: CallRow, **changes: Any) -> DriverCallsState:
    """Probes in place, and one function called, unless ``calls`` are given."""
    values: dict[str, Any] = {
        "calls": calls or (make_call(),),
        "libraries": ("/usr/lib/libcuda.so.1",),
        "attached": True,
    }
    return DriverCallsState(**values | changes)


def make_scraped_engine(**changes: Any) -> ScrapedEngine:
    """An engine without hooks whose page says everything there is to say, and one thing that can't be."""
    values: dict[str, Any] = {
        "engine": "s",
        "url": "http://127.0.0.1:8000",
        "kind": "vllm",
        "found": "config",
        "pid": None,
        "model": "s",
        "index": "0",
        "phase": "up",
        "reason": "",
        "page_age_seconds": 0.5,
        "scrapes": 120,
        "failures": 3,
        "scrape_seconds": 0.012,
        "bad_values": {"negative": 2},
        "resets": 1,
        "cannot": {"tenants, sessions and requests": "the page does not say whose its numbers are"},
        "impossible": "The engine says kv_cache_usage_perc = -0.3875, which can't be; not used.",
        "cache_dtype": "auto",
        "usage_ratio": 0.95,
        "capacity_blocks": 2000,
        "block_tokens": 16,
        "capacity_tokens": 32_000,
        "capacity_bytes": 2000 * MIB,
        "held_blocks": 1900,
        "held_tokens": 30_400,
        "held_bytes": 1900 * MIB,
        "running": 21,
        "waiting": 4,
        "swapped": 1,
        "preemptions": 6,
        "prompt_tokens": 70_000,
        "generation_tokens": 9_000,
        "prefix_queries": 60_000,
        "prefix_hits": 15_000,
        "prompt_tokens_per_second": 500.0,
        "generation_tokens_per_second": 80.0,
        "prefix_hit_ratio": 0.25,
        "growth_per_minute": 0.02,
        "growth_acceleration": 0.004,
    }
    return ScrapedEngine(**values | changes)


def make_scraped(*engines: ScrapedEngine, **changes: Any) -> ScrapedState:
    """One engine whose page is read, unless ``engines`` are given; one more is passed over and one left out."""
    values: dict[str, Any] = {
        "engines": engines or (make_scraped_engine(),),
        "passed_over": (PassedOver(pid=77, reason="its hooks report"),),
        "left_out": 1,
    }
    return ScrapedState(**values | changes)


def make_waterfall(**changes: Any) -> Waterfall:
    """80 GiB with every part that there is; those of engine m, of a PyTorch process and of the GPU itself."""
    engine = {
        "weights": 15000,
        "draft_model": 900,
        "lora": 300,
        "kv_held": 12000,
        "kv_cached_idle": 8000,
        "kv_empty": 20000,
        "encoder_cache": 200,
        "graphs": 1400,
        "torch_active": 700,
        "torch_inactive": 500,
        "context": 1100,
    }
    train = {"torch_active": 2000, "torch_inactive": 100, "context": 500}
    parts = [Part(part=name, bytes=size * MIB, error_bytes=0, owner="m") for name, size in engine.items()]
    parts += [
        Part(part=name, bytes=size * MIB, error_bytes=2 * MIB, owner="torch/train") for name, size in train.items()
    ]
    parts += [
        Part(part="kv_unsplit", bytes=600 * MIB, error_bytes=0, owner="quiet"),
        Part(part="untold", bytes=700 * MIB, error_bytes=2 * MIB, owner="quiet"),
        Part(part="other_processes", bytes=1024 * MIB, error_bytes=4 * MIB, count=2),
        Part(part="driver", bytes=600 * MIB, error_bytes=0),
        Part(part="free", bytes=16000 * MIB, error_bytes=2 * MIB),
    ]
    rest = 81920 * MIB - sum(part.bytes for part in parts)
    values: dict[str, Any] = {
        "gpu": "0",
        "uuid": "GPU-0",
        "total_bytes": 81920 * MIB,
        "parts": tuple(parts),
        "unattributed_bytes": rest,
        "error_bytes": sum(part.error_bytes for part in parts),
    }
    return Waterfall(**values | changes)
