"""One process of an engine: what is read each time, and what is read rarely because it costs more."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from agent.sources.host import procfs
from agent.sources.host.cgroups import memory_path_in, path_in
from agent.sources.host.growth import Samples
from agent.sources.host.inputs import Watched
from agent.sources.host.memory import shm
from agent.sources.host.pages import Pages
from agent.sources.host.place import place_of
from agent.sources.host.procfs import Stat, read_text, reason_of, sizes_of
from agent.sources.host.state import Place, ProcessState

T = TypeVar("T")

RARE_SECONDS = 30.0
_SIZES = ("VmRSS", "RssAnon", "RssFile", "RssShmem", "VmSwap", "VmLck", "VmPin")


@dataclass(slots=True)
class _Rare:
    """What is read each half minute."""

    due: float = 0.0
    pid_namespace: int | None = None
    open_files: int | None = None
    oom_score_adj: int | None = None
    shm_size: int | None = None
    shm_used: int | None = None
    cgroup: str | None = None
    place: Place = field(default_factory=Place)
    unavailable: dict[str, str] = field(default_factory=dict)


class ProcessReader:
    """Reads one process, from its first reading to its end. ``clock``: monotonic seconds; ``booted``: Unix seconds."""

    def __init__(self, proc: str, pid: int, booted: int | None, clock: Callable[[], float]) -> None:
        self._folder = f"{proc}/{pid}"
        self._proc = proc
        self._pid = pid
        self._booted = booted
        self._clock = clock
        self._rare = _Rare()
        self._samples = Samples()
        self._start_ticks: int | None = None

    def read(self, watched: Watched, pages: Pages) -> ProcessState | None:
        """Return the process as it is now, with its ``pages``; None where it has ended, or another has its pid."""
        try:
            stat = procfs.parse_stat(read_text(f"{self._folder}/stat", whole=False))
            status = read_text(f"{self._folder}/status", whole=False)
        except OSError as error:
            return None if procfs.is_gone(error) else self._unreadable(watched, reason_of(error))
        except (ValueError, IndexError):
            return self._unreadable(watched, "/proc/PID/stat is not in a form that we know")
        if self._start_ticks is None:
            self._start_ticks = stat.start_ticks
        if stat.start_ticks != self._start_ticks or stat.state in "X":
            return None
        now = self._clock()
        self._read_rare(now)
        return self._state(watched, pages, stat, status, now)

    def _state(self, watched: Watched, pages: Pages, stat: Stat, status: str, now: float) -> ProcessState:
        sizes = sizes_of(status, _SIZES)
        rare = self._rare
        unavailable = dict(rare.unavailable)
        if pages.reason:
            unavailable["proportional"] = pages.reason
        if "VmRSS" not in sizes:
            unavailable["resident"] = "it has ended and waits for its parent" if stat.state == "Z" else "not told"
        self._samples.add(now, sizes.get("VmRSS"))
        return ProcessState(
            engine=watched.engine,
            role=watched.role,
            rank=watched.rank,
            pid=watched.pid,
            inner_pid=procfs.inner_pid(status),
            pid_namespace=rare.pid_namespace,
            started_at=None if self._booted is None else self._booted + stat.start_ticks / procfs.TICKS,
            resident_bytes=sizes.get("VmRSS"),
            anonymous_bytes=sizes.get("RssAnon"),
            file_bytes=sizes.get("RssFile"),
            shared_bytes=sizes.get("RssShmem"),
            swap_bytes=sizes.get("VmSwap"),
            locked_bytes=sizes.get("VmLck"),
            pinned_bytes=sizes.get("VmPin"),
            proportional_bytes=pages.proportional,
            unique_bytes=pages.unique,
            proportional_age_seconds=None if pages.at is None else now - pages.at,
            threads=stat.threads,
            open_files=rare.open_files,
            oom_score_adj=rare.oom_score_adj,
            major_faults=stat.major_faults,
            shm_size_bytes=rare.shm_size,
            shm_used_bytes=rare.shm_used,
            cgroup=rare.cgroup,
            place=rare.place,
            growth=self._samples.growth,
            unavailable=unavailable,
        )

    def _read_rare(self, now: float) -> None:
        if now < self._rare.due:
            return
        rare, folder = _Rare(due=now + RARE_SECONDS), self._folder
        self._rare, why = rare, rare.unavailable
        rare.pid_namespace = _attempt(why, "pid_namespace", lambda: procfs.pid_namespace(self._proc, self._pid))
        rare.open_files = _attempt(why, "open_files", lambda: len(os.listdir(f"{folder}/fd")))
        rare.oom_score_adj = _attempt(why, "oom_score_adj", lambda: int(read_text(f"{folder}/oom_score_adj")))
        rare.shm_size, rare.shm_used = _attempt(why, "shm", lambda: shm(f"{folder}/root/dev/shm")) or (None, None)
        if text := _attempt(why, "cgroup", lambda: read_text(f"{folder}/cgroup")):
            rare.cgroup = path_in(text)
            rare.place = place_of(memory_path_in(text) or "")

    def _unreadable(self, watched: Watched, reason: str) -> ProcessState:
        """The process is there, and hidden (mount option hidepid) or odd."""
        return ProcessState(**watched._asdict(), unavailable={"process": reason})


def _attempt(unavailable: dict[str, str], name: str, read: Callable[[], T]) -> T | None:
    """Return what ``read`` gives; None, with the reason under ``name``, where it fails."""
    try:
        return read()
    except OSError as error:
        unavailable[name] = reason_of(error)
    except ValueError:
        unavailable[name] = "not in a form that we know"
    return None
