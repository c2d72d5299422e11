"""Find and end all processes of a session, through /proc alone.

A process that is started in a session of its own passes that session on to its children, and they keep it when
their parent dies. So whatever an engine started is found, also after its front end was killed.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
POLL_SECONDS = 0.05


def members(session: int) -> list[int]:
    """Return the living processes (zombies left out) of ``session`` and all that descend from them."""
    found: set[int] = set()
    stats = _stats()
    size = -1
    # A child of a member may have left the session; repeat until no generation adds anybody.
    while len(found) != size:
        size = len(found)
        found |= {pid for pid, (_, parent, sid) in stats.items() if sid == session or parent in found}
    return sorted(pid for pid in found if stats[pid][0] not in "ZX")


def title(pid: int) -> str:
    """Return the command line or the title that the process gave itself; empty when it is gone."""
    with suppress(OSError):
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each process that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_session(session: int, known: list[int] | None = None, timeout: float = 60.0) -> None:
    """Kill every member of ``session``, and those of ``known`` that live on; return when none is left.

    ``known`` are members seen earlier: one that left the session and whose parent died is found in no other way.
    """
    deadline = time.monotonic() + timeout
    stats = _stats()
    # A recorded number may have been given to a stranger since; only those still ours by descent or session,
    # or reparented to init, are meant.
    strays = [pid for pid in known or [] if pid in stats and stats[pid][1] == 1]
    while True:
        alive = sorted({*members(session), *(pid for pid in strays if _alive(pid))})
        if not alive:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {alive} survive SIGKILL")
        signal_all(alive, signal.SIGKILL)
        time.sleep(POLL_SECONDS)


def _alive(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[0] not in "ZX"


def _stats() -> dict[int, tuple[str, int, int]]:
    found = {int(entry.name): _stat(int(entry.name)) for entry in PROC.iterdir() if entry.name.isdigit()}
    return {pid: stat for pid, stat in found.items() if stat is not None}


def _stat(pid: int) -> tuple[str, int, int] | None:
    """Return (state, parent, session) of a process, or None when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name, in parentheses, may itself hold spaces and parentheses: what follows the last one is regular.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[3])
