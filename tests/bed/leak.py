"""The test's side of the leak plugin: order a leak of unknown size, and wait until it has been planted."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "KVTIDE_TEST_LEAK_DIR"
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
    """Return the environment that lets an engine be told to leak through ``directory``."""
    directory.mkdir(parents=True, exist_ok=True)
    return {VARIABLE: str(directory.resolve())}


def arm(directory: Path, minimum: int, maximum: int, *, shared: bool = False) -> None:
    """Order a leak of ``minimum`` to ``maximum`` blocks; the plugin draws how many and tells nobody.

    With ``shared``, blocks that other requests hold too may be taken.
    """
    if not 1 <= minimum <= maximum:
        raise ValueError(f"a leak needs 1 <= minimum <= maximum, not {minimum} and {maximum}")
    for stale in ("planted.json", "error.json"):
        (directory / stale).unlink(missing_ok=True)
    partial = directory / f".arm.{os.getpid()}"
    partial.write_text(json.dumps({"min": minimum, "max": maximum, "shared": shared}))
    partial.replace(directory / "arm")


def wait_planted(directory: Path, timeout: float) -> Planted:
    """Wait up to ``timeout`` seconds for the leak to be complete; requests must be finishing meanwhile."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if (directory / "error.json").exists():
            raise RuntimeError(f"the leak plugin failed: {(directory / 'error.json').read_text()}")
        if (directory / "planted.json").exists():
            return _read(directory / "planted.json")
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"no complete leak in {directory} after {timeout} s: did enough requests finish?")


def _read(path: Path) -> Planted:
    raw = json.loads(path.read_text())
    return Planted(
        n=raw["n"],
        block_ids=tuple(raw["block_ids"]),
        armed_monotonic=raw["armed_at"]["monotonic"],
        armed_unix=raw["armed_at"]["unix"],
        complete_monotonic=raw["complete_at"]["monotonic"],
        complete_unix=raw["complete_at"]["unix"],
        pid=raw["pid"],
    )
