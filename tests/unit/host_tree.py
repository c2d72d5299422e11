"""A made-up /proc and /sys/fs/cgroup, so that a test knows each number."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from agent.sources.config import HostConfig
from agent.sources.host.inputs import Held, Start, Watched
from agent.sources.host.pids import HOST_NAMESPACE
from agent.sources.host.source import HostSource
from agent.sources.host.state import HostState
from tests.unit.support import Clock

KIB = 1024
BOOTED = 1_700_000_000
_MEMORY = {"current": "6000", "max": "max", "high": "max", "swap.current": "40", "swap.max": "max"}
_STAT = "anon 5000\nfile 900\nkernel 100\nshmem 30\nunevictable 20\ninactive_file 700\npgfault 5\n"
_EVENTS = "low 0\nhigh 4\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n"
_PRESSURE = (
    "some avg10=25.00 avg60=0.00 avg300=0.00 total=12500000\nfull avg10=12.50 avg60=0.00 avg300=0.00 total=6250000\n"
)


class HostTree:
    """``folder`` becomes the root of both trees; ``source`` reads them, with a clock that moves only when told to."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.proc = folder / "proc"
        self.cgroups = folder / "cgroup"
        self.shm = folder / "shm"
        self.shm.mkdir()
        for root in (self.proc, self.cgroups):
            root.mkdir()
        self.write("stat", f"cpu 1 2\nbtime {BOOTED}\n")
        self.write("meminfo", "MemTotal:  1000 kB\nMemAvailable:  400 kB\nMlocked: 7 kB\nHugePages_Free:  3\n"
                   "Hugepagesize:  2048 kB\nOdd: x kB\n")  # fmt: skip
        self.write("vmstat", "nr_free_pages 5\noom_kill 6\n")
        (self.cgroups / "cgroup.controllers").write_text("cpu memory\n")
        self.namespace("self", HOST_NAMESPACE)
        self.clock, self.unix_clock = Clock(1000.0), Clock(1_700_100_000.0)
        self.watched: tuple[Watched, ...] = ()
        self.starts: tuple[Start, ...] = ()
        self.held: dict[str, list[Held]] | None = None
        self.source = HostSource(
            HostConfig(**config),
            lambda: self.watched,
            lambda: self.starts,
            lambda: self.held,
            proc=str(self.proc),
            cgroup=str(self.cgroups),
            shm_folder=str(self.shm),
            clock=self.clock,
            unix_clock=self.unix_clock,
        )

    def write(self, name: str, text: str) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def namespace(self, pid: int | str, inode: int) -> None:
        link = self.proc / str(pid) / "ns" / "pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(f"pid:[{inode}]")

    def process(self, pid: int, **changes: Any) -> None:
        """A process of 5000 KiB, started 100 s after the boot; ``cgroup`` and ``parent`` may be said."""
        said: dict[str, Any] = {
            "parent": 1,
            "state": "S",
            "start": 10_000,
            "resident": 5000,
            "cgroup": "/a",
            "inner": pid,
        }
        said |= changes
        pages = said["resident"] * KIB // os.sysconf("SC_PAGE_SIZE")
        fields = [said["state"], said["parent"], *[0] * 7, 17, *[0] * 7, 90, 0, said["start"], 0, pages]
        self.write(f"{pid}/stat", f"{pid} (a ) name) {' '.join(map(str, fields))}\n")
        self.write(
            f"{pid}/status",
            f"Name:\tx\nVmPeak:\t 9 kB\nVmLck:\t 5 kB\nVmPin:\t 7 kB\nVmRSS:\t {said['resident']} kB\n"
            f"RssAnon:\t 4000 kB\nRssFile:\t 600 kB\nRssShmem:\t 400 kB\nVmSwap:\t 3 kB\nThreads:\t90\n"
            f"NSpid:\t{pid}" + (f"\t{said['inner']}" if said["inner"] != pid else "") + "\n",
        )
        self.write(
            f"{pid}/smaps_rollup",
            "00400000-7fff0000 ---p 00000000 00:00 0 [rollup]\nRss: 5000 kB\nPss: 4500 kB\nPss_Anon: 1 kB\n"
            "Shared_Clean: 500 kB\nPrivate_Clean: 200 kB\nPrivate_Dirty: 4000 kB\n",
        )
        self.write(f"{pid}/oom_score_adj", "500\n")
        self.write(f"{pid}/cgroup", f"0::{said['cgroup']}\n")
        for name in ("fd/0", "fd/1", "fd/2", "task/1", "root/dev/shm/x"):
            self.write(f"{pid}/{name}", "")
        self.namespace(pid, 4026532001)

    def cgroup(self, path: str, **changes: str) -> Path:
        """A cgroup without limits that holds 6000 bytes; files by their name after ``memory.``."""
        folder = self.cgroups / path.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        files = _MEMORY | {"stat": _STAT, "events": _EVENTS, "pressure": _PRESSURE} | changes
        for name, text in files.items():
            (folder / f"memory.{name}").write_text(text)
        return folder

    def watch(self, *pids: int, engine: str = "m", role: str = "core") -> None:
        self.watched += tuple(Watched(engine, role, rank, pid) for rank, pid in enumerate(pids))

    def read(self, after: float = 5.0) -> HostState:
        """The state ``after`` so many seconds."""
        self.clock.now += after
        self.unix_clock.now += after
        return self.source.read()
