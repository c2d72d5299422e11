"""The host source: engines' processes, their cgroups, the host's memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from agent.sources.base import SourceError
from agent.sources.config import HostConfig
from agent.sources.host import cgroups, dead, procfs, restarts
from agent.sources.host.children import children, kin_in
from agent.sources.host.growth import Samples
from agent.sources.host.inputs import DeviceHolders, Processes, Starts, Watched, no_devices, nobody
from agent.sources.host.killed import Killed
from agent.sources.host.memory import host_memory, oom_kills, shm
from agent.sources.host.pages import PageWalks
from agent.sources.host.pids import HOST_NAMESPACE
from agent.sources.host.process import RARE_SECONDS, ProcessReader
from agent.sources.host.state import CgroupState, ChildrenState, DeadHolder, HostState, ProcessState

MAX_PROCESSES = 512
MAX_SCANNED = 20_000  # processes on the host; looking through more costs too much
_FIRST_ROLES = ("core", "worker", "frontend")
NO_HOST_PIDS = "the agent does not see the host's pids: run it in the host's pid namespace"


class HostSource:
    """Reads what concerns engines on this host. ``proc``, ``cgroup`` and ``shm_folder`` are roots of the trees."""

    NAME = "host"
    timeout = 10.0

    def __init__(
        self,
        config: HostConfig,
        processes: Processes = nobody,
        starts: Starts = nobody,
        device_holders: DeviceHolders = no_devices,
        *,
        proc: str = "/proc",
        cgroup: str = "/sys/fs/cgroup",
        shm_folder: str = "/dev/shm",  # noqa: S108 - it is read, nothing is put there
        clock: Callable[[], float] = time.monotonic,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.period = config.period_seconds
        self._processes = processes
        self._starts = starts
        self._device_holders = device_holders
        self._proc = proc
        self._cgroup = cgroup
        self._shm_folder = shm_folder
        self._clock = clock
        self._unix_clock = unix_clock
        self._readers: dict[int, tuple[Watched, ProcessReader]] = {}
        self._walks = PageWalks(proc, config.proportional_seconds, clock)
        self._ended: set[Watched] = set()
        self._killed = Killed(cgroup)
        self._samples: dict[str, Samples] = {}
        self._history: restarts.History = {}
        self._suspects: frozenset[tuple[str, int]] = frozenset()
        self._children: tuple[ChildrenState, ...] = ()
        self._children_of: dict[int, str] = {}
        self._children_due = 0.0

    def read(self) -> HostState:
        """Return what is there now."""
        if not os.path.isdir(self._proc):
            raise SourceError(f"there is no {self._proc}")
        unavailable: dict[str, str] = {}
        rows, gone = self._read_processes()
        kills = oom_kills(self._proc, unavailable)
        present = self._starts()
        now = self._unix_clock()
        self._history = restarts.remember(self._history, present, now)
        host_pids = self._sees_host_pids(unavailable)
        found = self._dead(host_pids, unavailable)
        return HostState(
            processes=rows,
            children=self._read_children(rows, unavailable),
            cgroups=self._read_cgroups(rows, unavailable),
            restarts=restarts.restarts(self._history, {start.engine for start in present}, now),
            killed=self._killed.look(rows, gone, kills, now),
            kills_total=self._killed.totals(),
            dead=None if found is None else found[0],
            dead_bytes=None if found is None else found[1],
            memory=host_memory(self._proc, unavailable),
            shm=self._read_shm(unavailable),
            oom_kills_total=kills,
            host_pids=host_pids,
            unavailable=unavailable,
        )

    def close(self) -> None:
        """Nothing is held."""

    # -- processes ------------------------------------------------------------------------------------------

    def _read_processes(self) -> tuple[tuple[ProcessState, ...], list[int]]:
        """Return the processes that are there, and the pids of those that were and are not."""
        booted = procfs.boot_time(self._proc)
        watched = {row.pid: row for row in _each_once(self._processes())}
        self._ended &= set(watched.values())
        self._walks.walk(pid for pid, row in watched.items() if row not in self._ended)
        rows, gone = [], []
        for pid, (before, reader) in list(self._readers.items()):
            # Its engine may have been forgotten before we look: only the kernel knows whether it has ended.
            state = reader.read(watched.get(pid, before), self._walks.of(pid))
            if state is None:
                gone.append(pid)
                self._ended.add(watched.get(pid, before))
            if state is None or pid not in watched:
                del self._readers[pid]
            else:
                rows.append(state)
        for pid, row in watched.items():
            if pid not in self._readers and row not in self._ended:  # its pid may be another's by now
                reader = ProcessReader(self._proc, pid, booted, self._clock)
                state = reader.read(row, self._walks.of(pid))
                if state is not None:
                    self._readers[pid] = row, reader
                    rows.append(state)
        order = {pid: number for number, pid in enumerate(watched)}
        return tuple(sorted(rows, key=lambda row: order[row.pid])), gone

    def _read_children(self, rows: tuple[ProcessState, ...], unavailable: dict[str, str]) -> tuple[ChildrenState, ...]:
        """Look through all processes of the host: rarely, and when others are watched than before."""
        now, watched = self._clock(), {row.pid: row.engine for row in rows}
        if now >= self._children_due or watched != self._children_of:
            self._children_due, self._children_of = now + RARE_SECONDS, watched
            few = bool(watched) and sum(1 for _ in procfs.pids_in(self._proc)) <= MAX_SCANNED
            self._children = children(kin_in(self._proc), watched) if few else ()
        if watched and not self._children:
            unavailable["children"] = f"there are more than {MAX_SCANNED:,} processes here"
        return self._children

    # -- cgroups --------------------------------------------------------------------------------------------

    def _read_cgroups(self, rows: tuple[ProcessState, ...], unavailable: dict[str, str]) -> tuple[CgroupState, ...]:
        if reason := cgroups.unsupported(self._cgroup):
            unavailable["cgroups"] = reason
            self._samples = {}
            return ()
        now = self._clock()
        named: dict[tuple[str, str], ProcessState] = {}
        states = []
        for row in rows:
            if row.cgroup is None:
                continue
            path, reason = cgroups.counted_path(self._cgroup, row.cgroup)
            if named.setdefault((row.engine, path), row) is row and reason:
                states.append(self._cgroup_state(row, row.cgroup, None, {"cgroup": reason}))
        counted = {path for _, path in named if path}
        memory = {path: cgroups.read_cgroup(self._cgroup, path) for path in counted}
        self._samples = {path: self._samples.get(path) or Samples() for path in memory}
        for path, each in memory.items():
            self._samples[path].add(now, each.working_set)
        states += [self._cgroup_state(row, path, memory[path], {}) for (_, path), row in named.items() if path]
        return tuple(states)

    def _cgroup_state(
        self, row: ProcessState, path: str, memory: cgroups.Memory | None, unavailable: dict[str, str]
    ) -> CgroupState:
        if memory is None:
            return CgroupState(engine=row.engine, role=row.role, rank=row.rank, path=path, unavailable=unavailable)
        return CgroupState(
            engine=row.engine,
            role=row.role,
            rank=row.rank,
            path=path,
            current_bytes=memory.current,
            working_set_bytes=memory.working_set,
            swap_bytes=memory.swap,
            limit_bytes=memory.limit.size,
            limit_of=memory.limit.path,
            limit_current_bytes=memory.limit_current,
            high_bytes=memory.high.size,
            high_of=memory.high.path,
            swap_limit_bytes=memory.swap_limit,
            events=memory.events,
            parts=memory.parts,
            pressure=memory.pressure,
            growth=self._samples[path].growth,
            unavailable=memory.unavailable,
        )

    # -- the host -------------------------------------------------------------------------------------------

    def _read_shm(self, unavailable: dict[str, str]) -> dict[str, int] | None:
        try:
            size, used = shm(self._shm_folder)
        except OSError as error:
            unavailable["shm"] = procfs.reason_of(error)
            return None
        return {"size": size, "used": used}

    def _sees_host_pids(self, unavailable: dict[str, str]) -> bool:
        try:
            if procfs.pid_namespace(self._proc, "self") == HOST_NAMESPACE:
                return True
            unavailable["host_pids"] = NO_HOST_PIDS
        except OSError as error:
            unavailable["host_pids"] = procfs.reason_of(error)
        return False

    def _dead(
        self, host_pids: bool, unavailable: dict[str, str]
    ) -> tuple[tuple[DeadHolder, ...], dict[str, int]] | None:
        held = self._device_holders() if host_pids else None
        if held is None:
            # A scan that was left out breaks the row: two scans must follow each other.
            self._suspects = frozenset()
            unavailable["dead"] = "nothing is known of the GPUs' processes now" if host_pids else NO_HOST_PIDS
            return None
        scan = dead.scan(self._suspects, held, lambda pid: procfs.is_alive(self._proc, pid))
        self._suspects = scan.suspects
        sums = dict.fromkeys(held, 0)
        for row in scan.found:
            sums[row.gpu] += row.used_bytes
        return scan.found, sums


def _each_once(watched: tuple[Watched, ...]) -> list[Watched]:
    """Each visible process under the first of its roles: an engine core that is its own worker is a core."""
    order = {role: number for number, role in enumerate(_FIRST_ROLES)}
    found: dict[int, Watched] = {}
    for row in sorted(watched, key=lambda row: (row.engine, order.get(row.role, len(order)), row.rank)):
        if row.pid > 0:
            found.setdefault(row.pid, row)
    return list(found.values())[:MAX_PROCESSES]
