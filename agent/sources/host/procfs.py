"""Files of /proc: read whole, and taken apart. All roots are given, so that a made-up tree serves as well."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CHUNK = 65536
TICKS = os.sysconf("SC_CLK_TCK")
_INNER_PID = re.compile(r"^NSpid:(?:\t\d+)*\t(\d+)$", re.MULTILINE)
_NAMESPACE = re.compile(r"pid:\[(\d+)\]")
_REASONS = {
    errno.EACCES: "no permission: run the agent as root, as the process's user, or with CAP_SYS_PTRACE",
    errno.EPERM: "no permission: run the agent as root, as the process's user, or with CAP_SYS_PTRACE",
    errno.ENOENT: "this kernel does not have it",
}


def read_text(path: str, whole: bool = True) -> str:
    """Return a file's text; raises OSError. Not ``whole``: of one record, as each process has, so one read gets it."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(handle, CHUNK)]
        while whole and parts[-1]:
            parts.append(os.read(handle, CHUNK))
    finally:
        os.close(handle)
    return b"".join(parts).decode(errors="replace")


def reason_of(error: OSError) -> str:
    """Say for people why a file of /proc or of a cgroup could not be read."""
    return _REASONS.get(error.errno or 0) or error.strerror or type(error).__name__


def is_gone(error: OSError) -> bool:
    """Return whether ``error``, from a file that each process has, means that the process has ended."""
    return error.errno in {errno.ENOENT, errno.ESRCH}


class Stat(NamedTuple):
    """From /proc/PID/stat; ``start_ticks``: since boot, tells a pid from its next user."""

    state: str
    parent: int
    major_faults: int
    threads: int
    start_ticks: int
    resident_pages: int


def parse_stat(text: str) -> Stat:
    """Take /proc/PID/stat apart; raises ValueError or IndexError where it is none."""
    # The name, in parentheses, may itself hold spaces and parentheses: what follows the last one is regular.
    fields = text.rpartition(")")[2].split()
    return Stat(fields[0], int(fields[1]), int(fields[9]), int(fields[17]), int(fields[19]), int(fields[21]))


def sizes_of(text: str, names: Iterable[str]) -> dict[str, int]:
    """Return the bytes of each line ``name:  123 kB``; a name that is not there, or not so, has no entry.

    It looks for what is wanted only: taking every line apart takes five times as long, 32 processes each time.
    """
    found = {}
    for name in names:
        at = text.find(f"{name}:")
        while at > 0 and text[at - 1] != "\n":
            at = text.find(f"{name}:", at + 1)
        if at >= 0:
            number, _, unit = text[at + len(name) + 1 : text.find("\n", at)].strip().partition(" ")
            if unit == "kB" and number.isdecimal():
                found[name] = int(number) * 1024
    return found


def numbers_of(text: str) -> dict[str, int]:
    """Return the number of each line ``name 123``; lines of another form are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def inner_pid(status: str) -> int | None:
    """Return the pid that a process has in its own namespace, from /proc/PID/status; None where it is not told."""
    match = _INNER_PID.search(status)
    return int(match[1]) if match else None


def boot_time(proc: str) -> int | None:
    """Return when the kernel booted, Unix seconds."""
    try:
        return numbers_of(read_text(f"{proc}/stat")).get("btime")
    except OSError:
        return None


def pids_in(proc: str) -> Iterator[int]:
    """Yield the pids that /proc shows."""
    yield from (int(name) for name in os.listdir(proc) if name.isdecimal())


def is_alive(proc: str, pid: int) -> bool:
    """Return whether a process still runs: a zombie does only while threads of it do."""
    try:
        state = parse_stat(read_text(f"{proc}/{pid}/stat")).state
        return state not in "ZX" or len(os.listdir(f"{proc}/{pid}/task")) > 1
    except PermissionError:
        return True
    except (OSError, ValueError, IndexError):
        return False


def pid_namespace(proc: str, pid: int | str) -> int:
    """Return the inode of a process's pid namespace; raises OSError, also where the link is none."""
    match = _NAMESPACE.fullmatch(os.readlink(f"{proc}/{pid}/ns/pid"))
    if match is None:
        raise OSError(errno.EINVAL, "not a namespace")
    return int(match[1])
