"""Files in /dev/shm that a killed engine leaves: found by who has them mapped, through /proc alone.

Only what processes of ours have had mapped is removed, and of that only what nobody has mapped any more: others on this
machine, engines of other tests among them, keep theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tests.bed.processes import PROC

FOLDER = Path("/dev/shm")  # noqa: S108 - looked at, and nothing is made there
_GONE = " (deleted)"


def mapped(pids: Iterable[int]) -> set[Path]:
    """Return the files in /dev/shm that processes have mapped and that still have a name."""
    found: set[Path] = set()
    for pid in pids:
        with suppress(OSError):
            for line in (PROC / str(pid) / "maps").read_text(errors="replace").splitlines():
                *_, path = line.split(maxsplit=5)
                if path.startswith(f"{FOLDER}/") and not path.endswith(_GONE):
                    found.add(Path(path))
    return found


def remove(paths: set[Path]) -> None:
    """Remove those of ``paths`` that no living process has mapped."""
    if any(path.exists() for path in paths):
        everybody = (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())
        for path in paths - mapped(everybody):
            with suppress(OSError):
                path.unlink()
