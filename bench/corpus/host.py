"""Processes and cgroups of a made-up host; growth is what the real source would have made of the same numbers."""

from __future__ import annotations

from random import Random

from agent.sources.host.growth import Samples
from agent.sources.host.state import CgroupState, ProcessState
from bench.corpus.clock import Tick
from bench.corpus.load import Noise

GIB = 1 << 30
MIB = 1 << 20
READ_SECONDS = 5.0


class Process:
    """A process of an engine. ``base``: bytes that it has for good; ``more``: what a scenario adds."""

    def __init__(self, rng: Random, engine: str, role: str, pid: int, *, base: int, wobble: float = 0.004) -> None:
        self.rng = Random(rng.getrandbits(64))
        self.engine, self.role, self.pid, self.base = engine, role, pid, base
        self.rank = 0
        self.more = 0
        self.file = int(self.rng.uniform(200, 900)) * MIB
        self.started_at = 0.0
        self._noise = Noise(self.rng, wobble * base, 120.0)
        self._samples = Samples()
        self._read = -1e9
        self._state: ProcessState | None = None

    @property
    def resident(self) -> int:
        """Bytes in RAM as they were last read."""
        return self._state.resident_bytes or 0 if self._state else self.base

    @property
    def anonymous(self) -> int:
        """Bytes of them that are no file's."""
        return self._state.anonymous_bytes or 0 if self._state else self.base

    def restart(self, at: float) -> None:
        """Begin anew, with nothing of what came on top."""
        self.pid += 17
        self.more, self.started_at = 0, at
        self._samples = Samples()

    def state(self, tick: Tick) -> ProcessState:
        """Return it as it was at the last reading."""
        if self._state is None or tick.t - self._read >= READ_SECONDS:
            self._read = tick.t
            anonymous = max(50 * MIB, self.base + self.more + int(self._noise.step(READ_SECONDS)))
            size = (anonymous + self.file) // 4096 * 4096
            self._samples.add(tick.monotonic, size)
            self._state = ProcessState(
                engine=self.engine,
                role=self.role,
                rank=self.rank,
                pid=self.pid,
                started_at=self.started_at,
                resident_bytes=size,
                anonymous_bytes=anonymous,
                file_bytes=self.file,
                shared_bytes=100 * MIB,
                swap_bytes=0,
                cgroup=f"/pod/{self.engine}",
                growth=self._samples.growth,
            )
        return self._state


class Cgroup:
    """The cgroup of an engine: what its processes have, and file pages beside that (``cache``)."""

    def __init__(self, rng: Random, engine: str, processes: list[Process], limit: int | None) -> None:
        self.rng = Random(rng.getrandbits(64))
        self.engine, self.processes, self.limit = engine, processes, limit
        self.cache = int(self.rng.uniform(1, 6) * GIB)
        self.more = 0  # in it, and in no process that is watched
        self.kills = 0
        self._samples = Samples()

    def state(self, tick: Tick) -> CgroupState:
        """Return it; the kernel drops file pages before the limit is reached."""
        working = sum(process.resident for process in self.processes) + self.more
        current = working + self.cache
        if self.limit is not None:
            current = min(current, max(working, self.limit - 30 * MIB))
            working = min(working, self.limit)
        self._samples.add(tick.monotonic, working)
        # What is in no process is files in shared memory: of files by the kernel's count, and not to be had back.
        anonymous = min(working, sum(process.anonymous for process in self.processes))
        return CgroupState(
            engine=self.engine,
            role=self.processes[0].role,
            rank=0,
            path=f"/pod/{self.engine}",
            current_bytes=current,
            working_set_bytes=working,
            swap_bytes=0,
            limit_bytes=self.limit,
            limit_of=f"/pod/{self.engine}" if self.limit else "",
            limit_current_bytes=current if self.limit else None,
            events={"low": 0, "high": 0, "max": 0, "oom": self.kills, "oom_kill": self.kills},
            parts={
                "anon": anonymous,
                "file": current - anonymous,
                "shmem": min(self.more, working - anonymous),
                "inactive_file": current - working,
            },
            growth=self._samples.growth,
        )
