"""The segments of the moment when an allocation failed, as a file that snapshot readers understand.

JSON with the keys of torch's own snapshot: ``segments``, and ``device_traces`` with the one entry that tells of the
failure. No frames: they would have to be asked for, and may be many.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

MAX_FILES = 8
MAX_BLOCKS = 100_000  # 9 MB, 0.4 s
PERIOD_SECONDS = 30.0
OFF = "KVTIDE_SNAPSHOT_DIR is not set"
_PATTERN = "kvtide-oom-*.json"
_SEGMENT_KEYS = (
    "device",
    "address",
    "total_size",
    "allocated_size",
    "active_size",
    "requested_size",
    "stream",
    "segment_type",
    "segment_pool_id",
    "is_expandable",
)
_BLOCK_KEYS = ("address", "size", "requested_size", "state")


class Snapshots:
    """Writes to ``folder``: the newest ``MAX_FILES``, one in ``PERIOD_SECONDS`` at most, for its owner's eyes only."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._next = 0.0

    def write(self, snapshot: Mapping[str, Any], device: int, requested: int, device_free: int) -> str:
        """Return the path of the file, or why there is none. Raises ``OSError`` where it can't be written."""
        if self._folder is None:
            return OFF
        now = time.monotonic()
        if now < self._next:
            return f"one was written less than {PERIOD_SECONDS:.0f} s before"
        self._next = now + PERIOD_SECONDS
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(self._folder)
        failure = {"action": "oom", "device_free": device_free, "size": requested, "stream": 0, "frames": []}
        traces: list[list[dict[str, Any]]] = [[] for _ in range(device + 1)]
        traces[device].append(failure | {"time_us": time.time_ns() // 1000})
        segments, left_out = _bounded(snapshot["segments"])
        content: dict[str, Any] = {"segments": segments, "device_traces": traces}
        if left_out:
            content["segments_left_out"] = left_out
        if settings := snapshot.get("allocator_settings"):
            content["allocator_settings"] = settings
        return str(_write(self._folder, msgspec.json.encode(content, enc_hook=str)))

    @staticmethod
    def _make_room(folder: Path) -> None:
        found = []
        for path in folder.glob(_PATTERN):
            with contextlib.suppress(OSError):  # another process makes room, too
                found.append((path.stat().st_mtime, path))
        for _, path in sorted(found)[: max(0, len(found) - MAX_FILES + 1)]:
            with contextlib.suppress(OSError):
                path.unlink()


def _bounded(segments: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """The segments until there are too many blocks, and how many were left out."""
    kept: list[dict[str, Any]] = []
    blocks = left_out = 0
    for segment in segments:
        blocks += len(segment["blocks"])
        if blocks > MAX_BLOCKS:
            left_out += 1
            continue
        row = {key: segment[key] for key in _SEGMENT_KEYS if key in segment}
        row["blocks"] = [{key: block[key] for key in _BLOCK_KEYS if key in block} for block in segment["blocks"]]
        kept.append(row)
    return kept, left_out


def _write(folder: Path, data: bytes) -> Path:
    """Write a new file that appears whole or not at all."""
    path = folder / f"kvtide-oom-{time.time_ns() // 1_000_000}-{os.getpid()}.json"
    draft = path.with_suffix(".part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        draft.rename(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return path
