"""Host pids and container pids: NVML speaks the host's, a container's logs speak its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.sources.host.state import ProcessState

HOST_NAMESPACE = 0xEFFFFFFC  # inode of the first pid namespace: PROC_PID_INIT_INO in the kernel's proc_ns.h


class InnerPid(NamedTuple):
    """A pid as its own process sees it, and the namespace that it counts in."""

    pid: int
    namespace: int


class PidMap:
    """The two numbers of each watched process, both ways; one that could not be read is not in it."""

    def __init__(self, processes: Iterable[ProcessState]) -> None:
        self._inner = {
            row.pid: InnerPid(row.inner_pid, row.pid_namespace)
            for row in processes
            if row.inner_pid is not None and row.pid_namespace is not None
        }
        self._outer = {inner: pid for pid, inner in self._inner.items()}

    def inner(self, pid: int) -> InnerPid | None:
        """Return a host pid's number in its own namespace."""
        return self._inner.get(pid)

    def outer(self, pid: int, namespace: int) -> int | None:
        """Return the host pid of what is ``pid`` in ``namespace``."""
        return self._outer.get(InnerPid(pid, namespace))
