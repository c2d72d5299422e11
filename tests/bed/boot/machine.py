"""Boots systemd in a container without a network; its files are this machine's, changed on a tmpfs of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

NEEDED = ("systemd-nspawn", "systemctl", "mount")
RUNNER = "kvtide-boot-test"
_UNIT = """
[Unit]
After=kvtide.service

[Service]
Type=oneshot
ExecStart=/bin/bash /boot-test/script
StandardOutput=file:/boot-test/output
StandardError=inherit
SuccessAction=poweroff-force
FailureAction=poweroff-force
TimeoutStartSec={seconds}
"""


def missing() -> str:
    """Return why nothing can be booted here; empty where it can."""
    if os.geteuid() != 0:
        return "a boot needs root"
    gone = [name for name in NEEDED if shutil.which(name) is None]
    return f"not here: {', '.join(gone)} (package systemd-container)" if gone else ""


class Machine:
    """``folder`` gets the mounts. ``root`` is what the booted system sees as /; everything goes with the block."""

    def __init__(self, folder: Path, name: str) -> None:
        self._tmpfs, self._name = folder / "tmpfs", name
        self.root = folder / "root"

    def __enter__(self) -> Self:
        self._tmpfs.mkdir()
        self.root.mkdir()
        _run("mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", str(self._tmpfs))
        for part in ("upper", "work"):
            (self._tmpfs / part).mkdir()
        layers = f"lowerdir=/,upperdir={self._tmpfs}/upper,workdir={self._tmpfs}/work"
        try:
            _run("mount", "-t", "overlay", "-o", layers, "overlay", str(self.root))
            self._prepare()
        except BaseException:
            self._unmount()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unmount()

    def _prepare(self) -> None:
        (self.root / "etc/machine-id").write_text("a" * 32 + "\n")
        (self.root / "boot-test").mkdir()
        units = self.root / "etc/systemd/system"
        for wants in units.glob("*.target.wants"):  # what this machine starts is not what is tested
            shutil.rmtree(wants)
        for unit in ("systemd-networkd", "systemd-resolved", "systemd-timesyncd", "getty.target", "systemd-udevd"):
            name = unit if "." in unit else f"{unit}.service"
            (units / name).unlink(missing_ok=True)
            (units / name).symlink_to("/dev/null")
        (units / "default.target").unlink(missing_ok=True)
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")

    def chroot(self, *command: str, **variables: str) -> str:
        """Run ``command`` with ``root`` as /, before the boot; return what it prints."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_OFFLINE": "1", **variables}
        return _run("chroot", str(self.root), *command, env=environment)

    def boot(self, script: str, seconds: float) -> str:
        """Boot, run ``script`` by bash once everything is up, power off; return what the script has printed."""
        (self.root / "boot-test/script").write_text(script)
        units = self.root / "etc/systemd/system"
        (units / f"{RUNNER}.service").write_text(_UNIT.format(seconds=seconds))
        wants = units / "multi-user.target.wants"
        wants.mkdir(exist_ok=True)
        (wants / f"{RUNNER}.service").symlink_to(f"../{RUNNER}.service")
        options = ["--register=no", "--keep-unit", "--private-network", "--link-journal=no", "--console=read-only"]
        command = ["systemd-nspawn", "-q", "-D", str(self.root), f"--machine={self._name}", *options, "--boot"]
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=2 * seconds, stdin=subprocess.DEVNULL
        )
        output = self.root / "boot-test/output"
        if not output.exists():
            raise RuntimeError(
                f"it did not come up: {ended.returncode}\n{ended.stdout[-4000:]}\n{ended.stderr[-2000:]}"
            )
        return output.read_text()

    def _unmount(self) -> None:
        for place in (self.root, self._tmpfs):
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def _run(*command: str, env: dict[str, str] | None = None) -> str:
    ended = subprocess.run(command, check=False, capture_output=True, text=True, env=env, stdin=subprocess.DEVNULL)
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.returncode}\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return ended.stdout
