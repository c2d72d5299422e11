"""Processes, cgroups and the host, as the kernel tells them."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

_PROCESS = ("engine", "role", "rank")
_FIRST = "Labelled by the first of the engine's processes in that cgroup."

PROCESS_INFO = Metric(
    "kvtide_process_info",
    "gauge",
    "info",
    (*_PROCESS, "runtime", "container", "pod"),
    "1 for each process of an engine; container and pod by its cgroup's path, empty where it runs in none.",
    detail=True,
)
PROCESS_RESIDENT = Metric(
    "kvtide_process_resident_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "RAM of this process by the kernel's word, shared pages included: a sum over processes counts those several times.",
)
PROCESS_PROPORTIONAL = Metric(
    "kvtide_process_proportional_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "RAM of this process, shared pages divided among those who share them (PSS): may be summed. Read rarely.",
    detail=True,
)
PROCESS_UNIQUE = Metric(
    "kvtide_process_unique_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "RAM that would be free if this process ended (USS). Read rarely.",
    detail=True,
)
PROCESS_SWAP = Metric(
    "kvtide_process_swap_bytes", "gauge", "bytes", _PROCESS, "Memory of this process in swap.", detail=True
)
PROCESS_PINNED = Metric(
    "kvtide_process_pinned_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "Memory that the kernel may not move (VmPin). What a GPU driver pins by means of its own is not in it.",
    detail=True,
)
PROCESS_LOCKED = Metric(
    "kvtide_process_locked_bytes", "gauge", "bytes", _PROCESS, "Memory that may not be swapped (VmLck).", detail=True
)
PROCESS_THREADS = Metric(
    "kvtide_process_threads", "gauge", "threads", _PROCESS, "Threads of this process.", detail=True
)
PROCESS_OPEN_FILES = Metric(
    "kvtide_process_open_files", "gauge", "files", _PROCESS, "Open files of this process. Read rarely.", detail=True
)
PROCESS_MAJOR_FAULTS = Metric(
    "kvtide_process_major_faults_total",
    "counter",
    "faults",
    _PROCESS,
    "Times that this process had to wait for a page from disk or swap.",
    detail=True,
)
CHILDREN = Metric(
    "kvtide_process_children",
    "gauge",
    "processes",
    ENGINE,
    "Processes that an engine's processes have started and that are none of its known ones.",
    detail=True,
)
CHILDREN_RESIDENT = Metric(
    "kvtide_process_children_resident_bytes", "gauge", "bytes", ENGINE, "RAM of those, shared pages included."
)
ENGINE_SHM = Metric(
    "kvtide_engine_shm_bytes",
    "gauge",
    "bytes",
    ("engine", "kind"),
    "Size and use (kind size, used) of /dev/shm as the engine sees it: a container has one of its own, of 64 MiB by "
    "default.",
    detail=True,
)
CGROUP_CURRENT = Metric(
    "kvtide_cgroup_memory_current_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    f"Memory of the engine's cgroup, page cache included. {_FIRST}",
)
CGROUP_WORKING_SET = Metric(
    "kvtide_cgroup_memory_working_set_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "The same without file pages that nobody used lately, which the kernel takes back at once.",
    detail=True,
)
CGROUP_LIMIT = Metric(
    "kvtide_cgroup_memory_limit_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "The least memory.max of this cgroup and those around it; absent where none has a limit.",
)
CGROUP_LIMIT_CURRENT = Metric(
    "kvtide_cgroup_memory_limit_current_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "Memory of the cgroup that has this limit: at the limit the kernel kills in it.",
    detail=True,
)
CGROUP_HIGH = Metric(
    "kvtide_cgroup_memory_high_bytes",
    "gauge",
    "bytes",
    _PROCESS,
    "The least memory.high, above which the kernel slows processes down; absent where none has one.",
    detail=True,
)
CGROUP_SWAP = Metric(
    "kvtide_cgroup_memory_swap_bytes", "gauge", "bytes", _PROCESS, "Memory of the engine's cgroup in swap.", detail=True
)
CGROUP_PARTS = Metric(
    "kvtide_cgroup_memory_bytes",
    "gauge",
    "bytes",
    (*_PROCESS, "kind"),
    "Pieces of the cgroup's memory by memory.stat: anon, file, shmem, unevictable, kernel and others. They overlap.",
    detail=True,
)
CGROUP_EVENTS = Metric(
    "kvtide_cgroup_memory_events_total",
    "counter",
    "events",
    (*_PROCESS, "event"),
    "Events of memory.events since the cgroup was made: high (slowed down), max (limit reached), oom, oom_kill.",
    detail=True,
)
CGROUP_PRESSURE = Metric(
    "kvtide_cgroup_memory_pressure_ratio",
    "gauge",
    "ratio",
    (*_PROCESS, "kind"),
    "Share of the last 10 s in which some or all (kind some, full) of the cgroup's tasks waited for memory.",
    detail=True,
)
CGROUP_STALLED = Metric(
    "kvtide_cgroup_memory_stalled_seconds_total",
    "counter",
    "seconds",
    (*_PROCESS, "kind"),
    "Time in which some or all of the cgroup's tasks waited for memory.",
)
HOST_MEMORY = Metric(
    "kvtide_host_memory_bytes",
    "gauge",
    "bytes",
    ("kind",),
    "The host's memory by /proc/meminfo: total, available, free, swap, dirty, shared, locked, unevictable, hugepages.",
)
HOST_SHM = Metric(
    "kvtide_host_shm_bytes",
    "gauge",
    "bytes",
    ("kind",),
    "Size and use (kind size, used) of the agent's /dev/shm.",
    detail=True,
)
HOST_OOM_KILLS = Metric(
    "kvtide_host_oom_kills_total",
    "counter",
    "processes",
    (),
    "Processes that the kernel killed for memory since it booted, in a cgroup or all over.",
)
ENGINE_OOM_KILLS = Metric(
    "kvtide_engine_oom_kills_total",
    "counter",
    "processes",
    ENGINE,
    "Processes of this engine that ended while a cgroup around them, or else the host, counted a kill for memory. They "
    "stay counted when the engine is gone.",
)
ENGINE_RESTARTS = Metric(
    "kvtide_engine_restarts",
    "gauge",
    "starts",
    ENGINE,
    "How often an engine of this name started again in the last 45 minutes, as far as this agent has seen.",
)
DEAD_PROCESS_MEMORY = Metric(
    "kvtide_dead_process_memory_bytes",
    "gauge",
    "bytes",
    ("gpu",),
    "Memory of this GPU that the driver books on processes that are gone, 4 GiB each at least, in two scans in a row; "
    "absent where the agent does not see the host's pids.",
)
