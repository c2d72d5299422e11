"""Reads ``nvidia-smi --query-gpu=... --format=csv -l N``: one series of used memory per GPU.

Copes with repeated headers, ``noheader`` and ``nounits``, several GPUs in turn, cells without a value, complaints in
place of rows, a cut last line, and a clock that jumps.
"""

from __future__ import annotations

import gzip
import io
import zlib
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import IO, cast

from agent.estimators import thinned
from agent.replay import cells
from agent.replay.errors import ReplayError

LIMIT = 2 << 30  # bytes, unpacked
LONGEST = 4096  # characters of a line
GPUS = 256
BURST = 0.1  # of the usual interval: samples closer than that come from several GPUs
MORE_THAN_ALL = "more than memory.total"
_KEYS = ("index", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id")
_NAMES = ("name", "gpu_name")


@dataclass
class Series:
    """One GPU: ``times`` (seconds) rise strictly, ``used`` is MiB. ``total``: MiB, None where never told."""

    gpu: str
    name: str = ""
    total: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    used: array[float] = field(default_factory=lambda: array("d"))
    missing: Counter[str] = field(default_factory=Counter)
    clock_jumps: int = 0
    shift: float = 0.0
    rows: int = 0

    def add(self, time: float, used: float) -> None:
        """Add a sample; where the clock went back, time goes on from where it was."""
        time += self.shift
        if self.times and time <= self.times[-1]:
            usual = self.times[-1] - self.times[-2] if len(self.times) > 1 else 1.0
            behind = self.times[-1] - time
            if behind < usual / 2:
                return  # the same moment again
            self.clock_jumps += 1
            self.shift += behind + usual
            time += behind + usual
        self.times.append(time)
        self.used.append(used)


@dataclass
class Log:
    """A whole file. ``garbled``: lines that fit no header; ``failures``: nvidia-smi's complaints, and how often."""

    series: dict[str, Series] = field(default_factory=dict)
    garbled: int = 0
    failures: Counter[str] = field(default_factory=Counter)


def read_log(path: Path, columns: str | None = None, interval: float | None = None) -> Log:
    """Return the log in the file at ``path``; raises :class:`ReplayError` with what it lacks.

    ``columns``: names in the order of the file, where it has no header. ``interval``: seconds between samples, where
    there is no timestamp column.
    """
    places = None if columns is None else _named(columns)
    width = 0 if places is None else max(places.values()) + 1
    log = Log()
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        row = cells.split(line)
        sample = places is not None and line[0].isdigit()  # a header and a complaint begin with a letter
        if not sample and (found := cells.header(row)) is not None:
            places, width = found, len(row)
            _check(found, path, interval)
        elif not sample and (complaint := cells.failure(line)) is not None:
            log.failures[complaint] += 1
        elif places is None:
            raise _no_header(path, number, line)
        elif len(row) != width:  # one more where a comma stands in a number: then each cell is another's
            log.garbled += 1
        else:
            _row(log, row, places, interval, path)
    if places is not None:
        _check(places, path, interval)
    if not log.series and not log.failures:
        of_lines = f"; {log.garbled:,} lines don't have the {width} columns of the header" if log.garbled else ""
        raise ReplayError(f"{path}: holds no row of nvidia-smi{of_lines}")
    for series in log.series.values():
        _check_bursts(series, places or {}, path)
    return log


def _no_header(path: Path, number: int, line: str) -> ReplayError:
    """Return what to say of a first line that is neither a header nor a complaint."""
    if cells.binary(line):
        return ReplayError(f"{path}: is not text")
    if cells.table(line):
        return ReplayError(
            f"{path}: this is nvidia-smi's table, not its CSV; make one with: nvidia-smi "
            "--query-gpu=timestamp,index,memory.used,memory.total --format=csv -l 10"
        )
    if (other := cells.separator(line)) is not None:
        return ReplayError(
            f"{path}: line {number}: columns are separated by {other}; only commas are read, and a point in numbers, "
            "as nvidia-smi writes them: save it like that"
        )
    return ReplayError(
        f"{path}: line {number} is no header of nvidia-smi; without one name the columns, for example: "
        "--columns timestamp,index,memory.used,memory.total"
    )


def _named(columns: str) -> dict[str, int]:
    names = [name.strip() for name in columns.split(",")]
    for name in names:
        if cells.header([name]) is None and not name.replace(".", "").replace("_", "").isalnum():
            raise ReplayError(f"--columns: {name!r} is no column of nvidia-smi; give the names as for --query-gpu")
    return {name: n for n, name in enumerate(names)}


def _check(places: dict[str, int], path: Path, interval: float | None) -> None:
    if "memory.used" not in places and not {"memory.free", "memory.total"} <= places.keys():
        raise ReplayError(
            f"{path}: has no memory.used (it has: {', '.join(places)}); log it with --query-gpu=memory.used"
        )
    if "timestamp" not in places and interval is None:
        raise ReplayError(f"{path}: has no timestamp column; say how many seconds lie between samples: --interval 1")


def _row(log: Log, row: list[str], places: dict[str, int], interval: float | None, path: Path) -> None:
    key = next((row[places[name]] for name in _KEYS if name in places), "0")
    series = log.series.get(key)
    if series is None:
        if len(log.series) >= GPUS:
            raise ReplayError(f"{path}: more than {GPUS} GPUs; are the columns named in the right order?")
        series = log.series[key] = Series(gpu=key)
        series.name = next((row[places[name]] for name in _NAMES if name in places), "")
    series.rows += 1
    if "timestamp" in places:
        time = cells.seconds(row[places["timestamp"]])
        if time is None:
            log.garbled += 1
            return
    else:
        time = series.rows * (interval or 1.0)
    total = cells.size_mib(row[places["memory.total"]]) if "memory.total" in places else None
    if total:
        series.total = total
    if "memory.used" in places:
        cell = row[places["memory.used"]]
        used = cells.size_mib(cell)
    else:
        cell = row[places["memory.free"]]
        free = cells.size_mib(cell)
        used = None if free is None or not total else max(0.0, total - free)
    if used is None:
        series.missing[cells.missing(cell)] += 1
        return
    if total and used > total:
        series.missing[MORE_THAN_ALL] += 1
        return
    series.add(time, used)


def _check_bursts(series: Series, places: dict[str, int], path: Path) -> None:
    """Refuse rows of several GPUs that nothing tells apart: their mixture would look like a saw-tooth."""
    if any(name in places for name in _KEYS) or "timestamp" not in places or len(series.times) < 10:
        return
    apart = [later - earlier for earlier, later in pairwise(series.times)]
    apart = list(thinned(apart, 2000))
    longest = median(sorted(apart)[-len(apart) // 4 :])
    if sum(1 for each in apart if each < BURST * longest) > len(apart) / 4:
        raise ReplayError(
            f"{path}: rows come in bursts, so they are of several GPUs, and no column tells which; log it with "
            "--query-gpu=index,..."
        )


def _lines(path: Path) -> Iterator[str]:
    try:
        if not path.is_file():
            raise ReplayError(f"{path}: is not a file" if path.exists() else f"{path}: there is no such file")
        with path.open("rb") as raw:
            source = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if raw.peek(2)[:2] == b"\x1f\x8b" else raw
            # What PowerShell writes with > is UTF-16.
            wide = source.read(2) == b"\xff\xfe"
            source.seek(0)
            text = io.TextIOWrapper(source, encoding="utf-16" if wide else "utf-8-sig", errors="replace")
            size = 0
            while line := text.readline(LONGEST):
                size += len(line)
                if size > LIMIT:
                    raise ReplayError(f"{path}: is larger than {LIMIT >> 20:,} MiB")
                if "\0" in line:
                    raise ReplayError(f"{path}: is not text")
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise ReplayError(f"{path}: can't be read: {getattr(error, 'strerror', None) or error}") from None
