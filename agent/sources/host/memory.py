"""The host's own memory: /proc/meminfo, /proc/vmstat, /dev/shm."""

from __future__ import annotations

import os

from agent.sources.host.procfs import numbers_of, read_text, reason_of, sizes_of

# Our names for lines of /proc/meminfo; one that this kernel lacks makes no entry.
_KINDS = {
    "MemTotal": "total",
    "MemAvailable": "available",
    "MemFree": "free",
    "SwapTotal": "swap_total",
    "SwapFree": "swap_free",
    "Dirty": "dirty",
    "Writeback": "writeback",
    "Shmem": "shared",
    "AnonPages": "anonymous",
    "Mlocked": "locked",
    "Unevictable": "unevictable",
    "Hugetlb": "hugepages",
}


def host_memory(proc: str, unavailable: dict[str, str]) -> dict[str, int] | None:
    """Return bytes by kind; None, and the reason in ``unavailable``, where there is no /proc/meminfo."""
    try:
        text = read_text(f"{proc}/meminfo")
    except OSError as error:
        unavailable["memory"] = reason_of(error)
        return None
    sizes, counts = sizes_of(text, (*_KINDS, "Hugepagesize")), numbers_of(text.replace(":", " "))
    found = {kind: sizes[name] for name, kind in _KINDS.items() if name in sizes}
    if "HugePages_Free" in counts and "Hugepagesize" in sizes:
        found["hugepages_free"] = counts["HugePages_Free"] * sizes["Hugepagesize"]
    return found


def oom_kills(proc: str, unavailable: dict[str, str]) -> int | None:
    """Return how many processes the kernel killed for memory since it booted, in cgroups and all over."""
    try:
        count = numbers_of(read_text(f"{proc}/vmstat")).get("oom_kill")
    except OSError as error:
        unavailable["oom_kills"] = reason_of(error)
        return None
    if count is None:
        unavailable["oom_kills"] = "this kernel does not count them"
    return count


def shm(folder: str) -> tuple[int, int]:
    """Return the size and the use of a tmpfs, bytes; raises OSError."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize, (found.f_blocks - found.f_bfree) * found.f_frsize
