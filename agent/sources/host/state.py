"""What is known of processes, cgroups and the host, as immutable values.

A number that could not be read is None, and ``unavailable`` of the same value says why, by field or group of fields.
"""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Where a process runs, by its cgroup's path. Empty: the path does not say.

    ``runtime``: docker, containerd, cri-o, podman, lxc, or container where only an id is told. ``qos``: the pod's
    class, guaranteed, burstable or besteffort. ``unit``: the innermost systemd service or scope that is no container.
    """

    runtime: str = ""
    container: str = ""
    pod: str = ""
    qos: str = ""
    unit: str = ""


class Growth(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How fast bytes grow: the median of the slopes between all pairs of samples, so that one step fakes nothing.

    ``ratio_per_minute`` is of the median of the samples; ``seconds``: the time that they cover, 600 at most.
    """

    bytes_per_second: float
    ratio_per_minute: float
    seconds: float


class ProcessState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One process of an engine, each once, under its first role.

    ``resident``: pages in RAM, shared ones included. ``proportional`` (PSS): shared pages divided among those who share
    them, so that a sum counts them once. ``unique`` (USS): what ending this process would free. Both are
    ``proportional_age_seconds`` old: they cost the kernel a walk through all pages. ``pinned``: pages that can't move
    (VmPin), ``locked``: pages that can't be swapped (VmLck); memory that a GPU driver pins for itself is in neither.
    ``inner_pid``: its pid in its own, innermost namespace; ``pid_namespace`` is that namespace's inode.
    ``cgroup``: path under the hierarchy's root. ``shm``: /dev/shm as this process sees it.
    ``unavailable``: reasons by field.
    """

    engine: str
    role: str
    rank: int
    pid: int
    inner_pid: int | None = None
    pid_namespace: int | None = None
    started_at: float | None = None
    resident_bytes: int | None = None
    anonymous_bytes: int | None = None
    file_bytes: int | None = None
    shared_bytes: int | None = None
    swap_bytes: int | None = None
    locked_bytes: int | None = None
    pinned_bytes: int | None = None
    proportional_bytes: int | None = None
    unique_bytes: int | None = None
    proportional_age_seconds: float | None = None
    threads: int | None = None
    open_files: int | None = None
    oom_score_adj: int | None = None
    major_faults: int | None = None
    shm_size_bytes: int | None = None
    shm_used_bytes: int | None = None
    cgroup: str | None = None
    place: Place = Place()
    growth: Growth | None = None
    unavailable: dict[str, str] = {}


class ChildrenState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Processes that descend from an engine's and are not watched themselves, summed up."""

    engine: str
    processes: int
    resident_bytes: int


class PressureState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Stalls for memory (PSI): share of the last 10 s, 0..1, and seconds in total. ``full``: nobody could run."""

    some_ratio: float
    full_ratio: float
    some_seconds: float
    full_seconds: float


class CgroupState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The memory of one cgroup (v2) of an engine, named by the first of the engine's processes in it.

    ``path``: the nearest that counts memory. ``limit``: the least memory.max of it and its ancestors, set on the cgroup
    ``limit_of``; None where none has a limit, and then ``limit_of`` is empty. ``limit_current``: what ``limit_of``
    holds, siblings included: what the limit is compared with. ``high``: likewise the least memory.high, above which the
    kernel slows its processes down. ``working_set``: current without file pages that nobody used lately; ``growth`` is
    of this. ``events``: memory.events (low, high, max, oom, oom_kill...), counts since the cgroup was made, those of
    cgroups inside it included. ``parts``: pieces of memory.stat. ``unavailable``: reasons by file.
    """

    engine: str
    role: str
    rank: int
    path: str
    current_bytes: int | None = None
    working_set_bytes: int | None = None
    swap_bytes: int | None = None
    limit_bytes: int | None = None
    limit_of: str = ""
    limit_current_bytes: int | None = None
    high_bytes: int | None = None
    high_of: str = ""
    swap_limit_bytes: int | None = None
    events: dict[str, int] | None = None
    parts: dict[str, int] | None = None
    pressure: PressureState | None = None
    growth: Growth | None = None
    unavailable: dict[str, str] = {}


class RestartState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How often an engine of this name started again in the last 45 minutes."""

    engine: str
    restarts: int


class DeadHolder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Device memory that is booked on a process which is not there, in two scans in a row."""

    gpu: str
    pid: int
    used_bytes: int


class KilledState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process of an engine that is gone, where a kill for memory was counted meanwhile. ``at``: noticed, Unix time.

    ``counted_by``: the innermost cgroup that still counts, empty for the whole host. ``certain``: it is the process's
    own; otherwise the kill may have hit another in ``counted_by`` while this process ended by itself.
    """

    engine: str
    role: str
    rank: int
    pid: int
    at: float
    counted_by: str
    certain: bool


class HostState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """This host and the processes on it that concern us.

    ``memory``: bytes by kind (total, available, swap_total, dirty, locked, ...); ``shm``: size and used of the agent's
    /dev/shm. ``oom_kills_total``: processes that the kernel killed for memory since it booted.
    ``host_pids``: pids here are the host's, as NVML speaks them; otherwise nothing can be said of dead pids.
    ``killed``: engines' processes that were killed for memory, newest first, 16 at most; ``kills_total``: how many by
    engine since the agent started.
    ``dead``: None where it can't be told; ``dead_bytes`` has a sum for each GPU that was looked at.
    ``unavailable``: reasons by field.
    """

    processes: tuple[ProcessState, ...] = ()
    children: tuple[ChildrenState, ...] = ()
    cgroups: tuple[CgroupState, ...] = ()
    restarts: tuple[RestartState, ...] = ()
    killed: tuple[KilledState, ...] = ()
    kills_total: dict[str, int] = {}
    dead: tuple[DeadHolder, ...] | None = None
    dead_bytes: dict[str, int] | None = None
    memory: dict[str, int] | None = None
    shm: dict[str, int] | None = None
    oom_kills_total: int | None = None
    host_pids: bool = False
    unavailable: dict[str, str] = {}
