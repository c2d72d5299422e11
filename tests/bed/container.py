"""A process as a container has it: folders mounted, read-only or not, a user of its own, few capabilities, own pids.

No image and no runtime: namespaces of the kernel, made by util-linux. Needs root, and the right to mount.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
STOP_SECONDS = 30.0
# What a container's root may do unless it is told otherwise: among it, to read whatever it sees.
USUAL = (
    "chown,dac_override,fowner,fsetid,kill,setgid,setuid,setpcap,net_bind_service,net_raw,sys_chroot,mknod,audit_write,"
    "setfcap"
)
_NAMESPACES = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")


class Mount(NamedTuple):
    """``source`` of the host is seen at ``target``, which is under /run or /node."""

    source: Path
    target: str
    read_only: bool = False


def unavailable() -> str:
    """Return why there are no containers here; empty where there are."""
    if os.geteuid() != 0:
        return "mounting needs root"
    try:
        done = subprocess.run(
            [*_NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True, check=False
        )
    except OSError as error:
        return f"unshare: {error.strerror}"
    return f"mounting is not permitted here: {done.stderr.strip()}" if done.returncode else ""


def command(
    mounts: Sequence[Mount], inner: Sequence[str], *, uid: int, gid: int, groups: Sequence[int] = (), bounding: str = ""
) -> list[str]:
    """Return the command that runs ``inner`` so. ``bounding``: capabilities that root keeps, with commas between."""
    lines = ["set -e", *_reachable((Path(sys.base_prefix), ROOT))]
    lines += ["mount -t tmpfs -o mode=755 tmpfs /run", "mount -t proc proc /proc"]
    for mount in mounts:
        source, target = shlex.quote(str(mount.source)), shlex.quote(mount.target)
        lines += [f"mkdir -p {target}", f"mount --bind {source} {target}"]
        lines += [f"mount -o remount,bind,ro {target}"] if mount.read_only else []
    kept = "".join(f",+{each}" for each in bounding.split(",") if each)
    drop = [f"--reuid={uid}", f"--regid={gid}", "--no-new-privs", f"--bounding-set=-all{kept}", "--inh-caps=-all"]
    drop.append(f"--groups={','.join(map(str, groups))}" if groups else "--clear-groups")
    lines.append(f"exec setpriv {shlex.join(drop)} {shlex.join(inner)}")
    return [*_NAMESPACES, "sh", "-c", "\n".join(lines)]


def _reachable(needed: Sequence[Path]) -> list[str]:
    """Return the lines that let every user reach ``needed``, where a folder around it is closed: as an image would."""
    closed = {path: _closed(path) for path in needed}
    if not any(closed.values()):
        return []
    lines = ["mount -t tmpfs tmpfs /mnt"]
    for number, path in enumerate(needed):
        lines += [f"mkdir /mnt/{number}", f"mount --bind {shlex.quote(str(path))} /mnt/{number}"]
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(each))}" for each in {*closed.values()} - {None}]
    for number, path in enumerate(needed):
        if closed[path] is not None:
            there = shlex.quote(str(path))
            lines += [f"mkdir -p {there}", f"mount --bind /mnt/{number} {there}"]
    return lines


def _closed(path: Path) -> Path | None:
    """Return the outermost folder around ``path`` that not everybody may enter."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & 1), None)


class Container:
    """A process in one, with pipes to its standard input and output; ``log`` gets what it says beside."""

    def __init__(self, line: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                line,
                cwd="/",
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **(env or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        self.log = log

    def line(self) -> str:
        """Return the next line that it prints; raises ``RuntimeError`` with its log where it ends before."""
        assert self.process.stdout is not None
        found = self.process.stdout.readline()
        if not found:
            raise RuntimeError(f"it ended with {self.process.wait(STOP_SECONDS)}:\n{self.log.read_text()}")
        return found

    def stop(self) -> None:
        """End it in order: its input ends, and it gets a SIGTERM, which a first process sees if it handles it."""
        pid = self.process.pid
        if self.process.stdin is not None:
            self.process.stdin.close()
        with contextlib.suppress(OSError, ValueError):
            inner = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
            os.kill(inner, signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the kernel ends all that is in its namespace
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
