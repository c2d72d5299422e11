"""The scripted library inside the test's own process, under a source of its own."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.sources.config import DeviceConfig
from agent.sources.device.source import DeviceSource
from agent.sources.device.state import DevicesState, GpuState
from tests.bed.nvml import LIBRARY, SCRIPT_VARIABLE, Gpu, Script, build, calls

PATIENCE = 10.0


@functools.cache
def library() -> Path:
    """Return the folder of the library, built once in this process."""
    folder = Path(tempfile.mkdtemp(prefix="kvtide-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder)


class Stage:
    """Plays scripts to ``source``, whose time moves by ``advance`` only; use it with ``with``."""

    def __init__(self, folder: Path, **config: Any) -> None:
        self.now = 1000.0
        self._path = folder / "script"
        config = {"library": str(library() / LIBRARY), "call_timeout_seconds": 5.0} | config
        self.source = DeviceSource(DeviceConfig(**config), clock=lambda: self.now)
        self._script = Script()

    def __enter__(self) -> Stage:
        os.environ[SCRIPT_VARIABLE] = str(self._path)
        return self

    def __exit__(self, *_: object) -> None:
        # Whatever hangs is let go, and the library is shut down before the next test initialises it.
        self.play(*(replace(gpu, hang=frozenset(), slow={}) for gpu in self._script.gpus))
        self.until(lambda: not self.source._lane.hanging())
        self.source.close()
        self.until(lambda: not self.threads())
        del os.environ[SCRIPT_VARIABLE]

    def play(self, *gpus: Gpu, **script: Any) -> None:
        """Let the driver say this from now on."""
        self._script = Script(gpus=gpus, **script)
        self._script.write(self._path)

    def advance(self, seconds: float) -> DevicesState:
        """Return the reading of so much later."""
        self.now += seconds
        return self.source.read()

    def read(self) -> DevicesState:
        """Return the reading of a second later."""
        return self.advance(1.0)

    def gpu(self, label: str = "0") -> GpuState:
        """Return one GPU of the reading of a second later."""
        return next(gpu for gpu in self.read().gpus if gpu.gpu == label)

    @staticmethod
    def calls(function: str) -> int:
        """Return how often the C function was called by this process so far."""
        return calls(library(), function)

    @staticmethod
    def threads() -> int:
        """Return how many threads are in the library or wait to be sent there."""
        return sum(thread.name == "kvtide-nvml" for thread in threading.enumerate())

    @staticmethod
    def until(check: Callable[[], object]) -> None:
        """Poll until ``check`` holds."""
        end = time.monotonic() + PATIENCE
        while not check():
            assert time.monotonic() < end, "did not happen"
            time.sleep(0.005)
