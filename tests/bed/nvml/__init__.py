"""A scripted NVML: a C library under the unmodified nvidia-ml-py binding, that says what a file says.

``build`` compiles it with ``cc``; ``Script(...).write(path)`` is what it plays, at once and atomically, also while
readers run; ``environment`` is what a process needs to find both. In the own process, give the library's path to what
loads it: by its soname the binding then finds the one that is loaded.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT_VARIABLE = "KVTIDE_TEST_NVML_SCRIPT"
LIBRARY = "libnvidia-ml.so.1"
HERE = Path(__file__).parent
GIB = 1 << 30
MIB = 1 << 20

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 4, 9, 13, 15
VERSION_MISMATCH, UNKNOWN = 18, 999

# What other tools show: a healthy card under load.
VALUES = {
    "nvmlDeviceGetTemperature": 54,
    "nvmlDeviceGetPowerUsage": 412_000,
    "nvmlDeviceGetPowerManagementLimit": 700_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetPerformanceState": 0,
    "nvmlDeviceGetPersistenceMode": 1,
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetPcieThroughput": 1200,
    "nvmlDeviceGetEncoderUtilization": 0,
    "nvmlDeviceGetDecoderUtilization": 0,
}


@dataclass(frozen=True)
class Memory:
    """Bytes; ``free`` is what the other three leave unless given."""

    total: int = 80 * GIB
    used: int = 10 * GIB
    reserved: int = 600 * MIB
    free: int | None = None

    def line(self) -> str:
        """Return it as the library reads it."""
        free = self.total - self.used - self.reserved if self.free is None else self.free
        return f"{self.total} {self.used} {free} {self.reserved}"


@dataclass(frozen=True)
class Process:
    """``used`` None is N/A; ``kind``: C compute, G graphics, M a client of MPS; ``instance``: of GPU and of compute."""

    pid: int
    used: int | None = GIB
    kind: str = "C"
    instance: tuple[int, int] | None = None


@dataclass(frozen=True)
class Instance:
    """A MIG device."""

    gpu_instance: int
    memory: Memory = Memory(total=20 * GIB, used=5 * GIB, reserved=0)
    compute_instance: int = 0
    uuid: str = ""


@dataclass(frozen=True)
class Gpu:
    """One card; what is None is not supported.

    ``curve``: (seconds since ``Script.began``, bytes used), linear in between. ``ecc``: corrected and uncorrected since
    the driver was loaded, then ever. ``remapped``: corrected, uncorrected, pending, failure. ``retired``: for
    single-bit, for double-bit errors, pending. ``xid``: (events so far, code): one more than before is one new event.
    ``fail``, ``slow`` (milliseconds), ``values``: by C function; ``hang``: C functions that do not return. ``lost``:
    the card has fallen off the bus; one that leaves ``Script.gpus`` was removed while the driver ran.
    """

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory: Memory | None = Memory()
    curve: tuple[tuple[float, int], ...] = ()
    processes: tuple[Process, ...] = ()
    bar1: tuple[int, int] | None = (128 * GIB, 7 * MIB)
    utilisation: tuple[int, int] | None = (87, 41)
    throttle: int | None = 0
    ecc: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    retired: tuple[int, int, int] | None = None
    mig: bool | None = False
    instances: tuple[Instance, ...] = ()
    compute_mode: int = 0
    xid: tuple[int, int] | None = None
    lost: bool = False
    fail: dict[str, int] = field(default_factory=dict)
    hang: frozenset[str] = frozenset()
    slow: dict[str, int] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=lambda: dict(VALUES))

    def lines(self) -> list[str]:
        """Return the section of this card."""
        lines = ["gpu", f"uuid {self.uuid}", f"name {self.name}", f"compute_mode {self.compute_mode}"]
        lines += [f"memory {self.memory.line()}"] if self.memory else []
        lines += [f"point {at} {used}" for at, used in self.curve]
        lines += ["lost"] if self.lost else []
        for name in ("bar1", "utilisation", "ecc", "remapped", "retired", "xid"):
            numbers = getattr(self, name)
            lines += [] if numbers is None else [f"{name} {' '.join(map(str, numbers))}"]
        lines += [] if self.throttle is None else [f"throttle {self.throttle}"]
        lines += [] if self.mig is None else [f"mig {int(self.mig)}"]
        for each in self.processes:
            where = (0xFFFFFFFF, 0xFFFFFFFF) if each.instance is None else each.instance
            used = "na" if each.used is None else each.used
            lines.append(f"process {each.kind} {each.pid} {used} {where[0]} {where[1]}")
        for one in self.instances:
            uuid = one.uuid or f"MIG-{self.uuid[4:]}-{one.gpu_instance}-{one.compute_instance}"
            lines.append(f"instance {one.gpu_instance} {one.compute_instance} {uuid} {one.memory.line()}")
        lines += [f"value {name} {number}" for name, number in self.values.items()]
        return lines + _rules(self.fail, self.hang, self.slow)


@dataclass(frozen=True)
class Script:
    """All that the driver says. ``fail``, ``hang`` and ``slow`` hold for every card that has none of its own.

    ``began``: CLOCK_MONOTONIC seconds at which the curves begin.
    """

    gpus: tuple[Gpu, ...] = ()
    driver: str = "580.95.05"
    cuda: int = 13000
    began: float = field(default_factory=time.monotonic)
    fail: dict[str, int] = field(default_factory=dict)
    hang: frozenset[str] = frozenset()
    slow: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Let the library play this from now on."""
        lines = [f"driver {self.driver}", f"cuda {self.cuda}", f"began {self.began}"]
        lines += _rules(self.fail, self.hang, self.slow)
        for gpu in self.gpus:
            lines += gpu.lines()
        new = path.with_name(path.name + ".new")
        new.write_text("\n".join(lines) + "\n")
        new.replace(path)


def build(folder: Path) -> Path:
    """Compile the library and return the folder that has it as ``libnvidia-ml.so.1``."""
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", f"-Wl,-soname,{LIBRARY}"]
    sources = [str(HERE / name) for name in ("nvml.c", "script.c")]
    subprocess.run(["cc", *flags, "-o", str(folder / LIBRARY), *sources, "-lpthread"], check=True)
    return folder


def environment(library: Path, script: Path) -> dict[str, str]:
    """Return the variables with which another process finds the folder ``library`` and plays ``script``."""
    path = os.pathsep.join(filter(None, (str(library), os.environ.get("LD_LIBRARY_PATH"))))
    return {"LD_LIBRARY_PATH": path, SCRIPT_VARIABLE: str(script)}


def calls(library: Path, function: str) -> int:
    """Return how often this process has called the C function."""
    return int(ctypes.CDLL(str(library / LIBRARY)).kvtide_test_calls(function.encode()))


def _rules(fail: dict[str, int], hang: frozenset[str], slow: dict[str, int]) -> list[str]:
    lines = [f"fail {name} {code}" for name, code in fail.items()]
    lines += [f"hang {name}" for name in sorted(hang)]
    return lines + [f"slow {name} {milliseconds}" for name, milliseconds in slow.items()]
