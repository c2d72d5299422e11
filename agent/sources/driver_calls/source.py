"""The driver calls source: keeps bpftrace at the libraries that engines have mapped, and tells what it counted."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from agent.sources.base import SourceError
from agent.sources.config import DriverCallsConfig
from agent.sources.driver_calls.counts import Ledger, counts_of
from agent.sources.driver_calls.libraries import Library, Mapped
from agent.sources.driver_calls.program import Probe, calls_in, program
from agent.sources.driver_calls.state import DriverCallsState
from agent.sources.driver_calls.tracer import Tracer, listing
from agent.sources.host.inputs import Processes, nobody

MAX_PIDS = 64
MAX_LIBRARIES = 8
ATTACH_SECONDS = 20.0
SILENT_SECONDS = 5.0
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds from an end that was not ours to the next start, doubled each time
NEEDS = "it needs root with CAP_SYS_ADMIN"
NOBODY = "no engine has a CUDA library mapped"


class _Target(NamedTuple):
    """What is to be traced: files by device and inode, as they are reached, in which processes."""

    files: frozenset[tuple[str, int]]
    engines: dict[int, str]
    reached: tuple[Library, ...]


class DriverCallsSource:
    """Times the memory calls of engines' processes from outside."""

    NAME = "driver_calls"
    period = 1.0
    timeout = 30.0

    def __init__(
        self,
        config: DriverCallsConfig,
        processes: Processes = nobody,
        *,
        proc: str = "/proc",
        bpftrace: str = "bpftrace",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library = config.library
        self._processes = processes
        self._bpftrace = bpftrace
        self._clock = clock
        self._mapped = Mapped(proc)
        self._calls: dict[tuple[str, int], tuple[str, ...]] = {}
        self._ledger = Ledger()
        self._lock = threading.Lock()
        self._closed = False
        self._listing: subprocess.Popen[bytes] | None = None
        self._tracer: Tracer | None = None
        self._target = _Target(frozenset(), {}, ())
        self._began = 0.0
        self._starts = 0
        self._failure = ""
        self._wait = FIRST_WAIT
        self._not_before = 0.0

    def read(self) -> DriverCallsState:
        """Return the counts; start, move or restart bpftrace when that is due."""
        command = shutil.which(self._bpftrace)
        if command is None:
            raise SourceError(f"{self._bpftrace} is not installed here: driver calls can't be timed without it")
        with self._lock:
            if self._closed:
                raise SourceError("closed")
            return self._read(command)

    def close(self) -> None:
        """End bpftrace, also where a reading is under way and it is bpftrace that this one waits for."""
        self._closed = True
        child = self._listing
        if child is not None:
            child.kill()
        with self._lock:
            self._stop()

    def _read(self, command: str) -> DriverCallsState:
        now = self._clock()
        engines = {row.pid: row.engine for row in reversed(self._processes()) if row.pid > 0}
        target = self._find(engines, now)
        self._check(now)
        if not target.engines:
            self._stop()
            self._failure = ""
        # One that left costs nothing where it is; only who is new makes us begin again.
        elif not (target.files <= self._target.files and target.engines.keys() <= self._target.engines.keys()):
            self._stop()
        if self._tracer is None and target.engines and now >= self._not_before:
            self._start(command, target, now)
        if self._failure:
            raise SourceError(self._failure)
        running = counts_of(self._tracer.maps(), self._target.engines) if self._tracer else {}
        attached = self._tracer is not None and self._tracer.attached
        if self._mapped.unreadable and not target.engines:
            raise SourceError(f"engines' maps can't be read: {next(iter(self._mapped.unreadable.values()))}")
        return DriverCallsState(
            calls=self._ledger.rows(running, set(engines.values()), now),
            libraries=tuple(sorted({each.path for each in target.reached})),
            attached=attached,
            reason="" if attached else "bpftrace is attaching" if self._tracer else NOBODY,
            restarts=max(0, self._starts - 1),
        )

    def _find(self, engines: Mapping[int, str], now: float) -> _Target:
        """Return what there is to trace now."""
        if self._library is not None:
            path = str(self._library)
            pids = dict(list(engines.items())[:MAX_PIDS])
            only = Library("", 0, path, path, is_driver=True)
            return _Target(frozenset({("", 0)}), pids, (only,)) if pids else _Target(frozenset(), {}, ())
        mapped = dict(list(self._mapped.look(engines, now).items())[:MAX_PIDS])
        files: dict[tuple[str, int], Library] = {}
        for libraries in mapped.values():
            for each in libraries:
                files.setdefault((each.device, each.inode), each)
        kept = dict(list(files.items())[:MAX_LIBRARIES])
        return _Target(frozenset(kept), {pid: engines[pid] for pid in mapped}, tuple(kept.values()))

    def _check(self, now: float) -> None:
        """Notice that bpftrace has ended, never attached, or says nothing more."""
        tracer = self._tracer
        if tracer is None:
            return
        problem = tracer.ended()
        if problem and not tracer.attached:
            problem += f" ({NEEDS})"
        if not problem and not tracer.attached and now - self._began > ATTACH_SECONDS:
            problem = f"bpftrace has not attached its probes in {ATTACH_SECONDS:g} s"
        if not problem and tracer.attached and now - tracer.heard > SILENT_SECONDS:
            problem = f"bpftrace has said nothing for {now - tracer.heard:.0f} s"
        if problem:
            self._stop()
            self._fail(problem, now)
        elif tracer.attached:
            self._failure, self._wait = "", FIRST_WAIT

    def _start(self, command: str, target: _Target, now: float) -> None:
        probes = []
        try:
            for each in target.reached:
                key = (each.device, each.inode)
                if key not in self._calls:
                    self._calls[key] = calls_in(listing(command, each.reached, self._ends))
                if self._calls[key]:
                    probes.append(Probe(each.reached, self._calls[key]))
            self._calls = {key: self._calls[key] for key in target.files}
            if not probes:
                names = ", ".join(each.path for each in target.reached)
                self._fail(f"none of the functions to be timed is in {names}", now)
                return
            if self._closed:
                return
            self._tracer = Tracer(command, program(probes, sorted(target.engines)), self._clock)
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "strerror", None) or str(error)
            self._fail(f"bpftrace: {words} ({NEEDS})", now)
            return
        finally:
            self._listing = None
        self._target, self._began = target, now
        self._starts += 1

    def _ends(self, child: subprocess.Popen[bytes]) -> None:
        """A listing has begun: ``close`` must be able to end it."""
        self._listing = child
        if self._closed:
            child.kill()

    def _stop(self) -> None:
        tracer, self._tracer = self._tracer, None
        if tracer is not None:
            tracer.close()
            self._ledger.close(counts_of(tracer.maps(), self._target.engines))
        self._target = _Target(frozenset(), {}, ())

    def _fail(self, reason: str, now: float) -> None:
        self._failure = reason
        self._not_before = now + self._wait
        self._wait = min(LONGEST_WAIT, 2 * self._wait)
