"""Orders to the engine's plugin: leak so many KV blocks, at once or at a pace, and wait until they have leaked."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvtide_chaos import quantities
from kvtide_chaos.injector import Injector, InjectorError

VARIABLE = "KVTIDE_CHAOS_DIR"
POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Planted:
    """A leak that is complete: ``n`` blocks with a reference and no owner, and when that became true.

    ``*_monotonic`` are seconds of this machine's monotonic clock, ``*_unix`` seconds since the epoch.
    """

    n: int
    block_ids: tuple[int, ...]
    armed_monotonic: float
    armed_unix: float
    complete_monotonic: float
    complete_unix: float
    pid: int


def leak_env(directory: Path) -> dict[str, str]:
    """Return the environment that lets an engine be told to leak through ``directory``, which is made if need be."""
    directory.mkdir(parents=True, exist_ok=True)
    return {VARIABLE: str(directory.resolve())}


def arm(directory: Path, minimum: int, maximum: int, *, shared: bool = False, per_second: float | None = None) -> None:
    """Order a leak of ``minimum`` to ``maximum`` blocks; the plugin draws how many and tells nobody.

    With ``shared``, blocks that other requests hold too may be taken: each costs one reference, and is an orphan only
    once those have finished. With ``per_second`` they go at that pace instead of all with the next requests.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"a leak needs 1 <= minimum <= maximum, not {minimum} and {maximum}")
    for stale in ("planted.json", "progress.json", "error.json"):
        (directory / stale).unlink(missing_ok=True)
    order = {"min": minimum, "max": maximum, "shared": shared, "per_second": per_second}
    partial = directory / f".arm.{os.getpid()}"
    partial.write_text(json.dumps(order))
    partial.replace(directory / "arm")


def wait_planted(directory: Path, timeout: float) -> Planted:
    """Wait up to ``timeout`` seconds for the leak to be complete; requests must be finishing meanwhile."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        raise_error(directory)
        if (planted := told(directory, "planted.json")) is not None:
            return planted
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no complete leak in {directory} after {timeout} s: did enough requests finish?")


def raise_error(directory: Path) -> None:
    """Raise ``InjectorError`` if the plugin has said that it failed."""
    if (directory / "error.json").exists():
        raise InjectorError(f"the plugin in the engine failed: {(directory / 'error.json').read_text()}")


def told(directory: Path, name: str) -> Planted | None:
    """Return what the plugin wrote under ``name`` (``planted.json`` or ``progress.json``), None if it wrote nothing."""
    try:
        raw: dict[str, Any] = json.loads((directory / name).read_text())
    except FileNotFoundError:
        return None
    return Planted(
        n=raw["n"],
        block_ids=tuple(raw["block_ids"]),
        armed_monotonic=raw["armed_at"]["monotonic"],
        armed_unix=raw["armed_at"]["unix"],
        complete_monotonic=raw["complete_at"]["monotonic"],
        complete_unix=raw["complete_at"]["unix"],
        pid=raw["pid"],
    )


class KvBlockLeakInjector(Injector):
    """Lets an engine lose ``rate`` KV blocks each second, up to ``limit``, as its requests finish.

    The engine must have been started with ``leak_env(directory)`` and with this distribution beside it. What has
    leaked stays leaked at the end: a block that may have been handed out again can't be given back safely.
    """

    def __init__(
        self, directory: str | Path, rate: str = "1block/s", *, limit: int = 100, duration: str | float = "10m"
    ) -> None:
        super().__init__(duration)
        self.directory = Path(directory)
        self.blocks_per_second = quantities.count_per_second(rate, "blocks")
        self.limit = limit

    @property
    def leaked_blocks(self) -> int:
        """Blocks that have leaked since the start, as the engine tells it."""
        found = told(self.directory, "planted.json") or told(self.directory, "progress.json")
        return 0 if found is None else found.n

    def _begin(self) -> None:
        if not self.directory.is_dir():
            raise ValueError(f"{self.directory} is no directory: start the engine with {VARIABLE} set to one that is")
        arm(self.directory, self.limit, self.limit, per_second=self.blocks_per_second)

    def _step(self, elapsed: float) -> None:
        raise_error(self.directory)

    def _take_back(self) -> None:
        (self.directory / "arm").unlink(missing_ok=True)
