"""Cells and lines of nvidia-smi's CSV: names with units, sizes, times, and the texts that stand for 'no value'."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_NAME = re.compile(r"^([a-z][a-z0-9_.]*)(?: \[([^\]]+)\])?$")
_SIZE = re.compile(r"^(-?\d{1,15}(?:\.\d{1,15})?)(?: ?(KiB|MiB|GiB|MB|GB))?$", re.ASCII)
_TIME = re.compile(r"^(\d{4})[/-](\d\d)[/-](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?$", re.ASCII)
_DATE = re.compile(r"^[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\s*$", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_MIB = {"KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0, "MB": 1e6 / 2**20, "GB": 1e9 / 2**20}
# Any of these in a line makes it a header; no value reads like that.
KNOWN = {
    "timestamp",
    "index",
    "uuid",
    "gpu_uuid",
    "name",
    "gpu_name",
    "pci.bus_id",
    "gpu_bus_id",
    "memory.used",
    "memory.total",
    "memory.free",
    "memory.reserved",
    "utilization.gpu",
    "utilization.memory",
    "temperature.gpu",
    "power.draw",
    "driver_version",
}
# What nvidia-smi prints in place of rows when it can't read a GPU.
_FAILURES = ("unable to determine", "no devices were found", "nvidia-smi has failed", "failed to initialize", "error")


def split(line: str) -> list[str]:
    """Return the cells of a line; a spreadsheet may have put quotes around each."""
    return [cell.strip().removeprefix('"').removesuffix('"').strip() for cell in line.split(",")]


def separator(line: str) -> str | None:
    """Return what separates the columns of a header that has no commas; None when it is no header like that."""
    names = {";": "semicolons", "\t": "tabs", "|": "bars"}
    return next((name for sign, name in names.items() if header(line.split(sign)) is not None), None)


def header(cells: list[str]) -> dict[str, int] | None:
    """Return the place of each column when this is a header, else None."""
    names = [match.group(1) if (match := _NAME.match(cell.strip())) else "" for cell in cells]
    if not KNOWN.intersection(names):
        return None
    return {name: n for n, name in enumerate(names) if name}


def size_mib(cell: str) -> float | None:
    """Return a size in MiB, which is nvidia-smi's unit where none stands there; None for no value."""
    match = _SIZE.match(cell)
    if match is None:
        return None
    value = float(match.group(1)) * _MIB[match.group(2) or "MiB"]
    return value if value >= 0 else None


def missing(cell: str) -> str:
    """Return the text of a cell that is no value, for counting: ``[N/A]``, ``[GPU is lost]``..."""
    return cell[:60] or "(empty)"


def seconds(cell: str) -> float | None:
    """Return a time in seconds since 1970, read as UTC for want of a zone; None when it is no time."""
    match = _TIME.match(cell)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups()
    try:
        moment = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    except ValueError:
        return None
    return moment.timestamp() + (int(fraction) / 10 ** len(fraction) if fraction else 0.0)


def table(line: str) -> bool:
    """Return whether this begins what nvidia-smi prints for people: a date alone, then a frame."""
    return line.startswith("+---") or "NVIDIA-SMI" in line or _DATE.match(line) is not None


def binary(line: str) -> bool:
    """Return whether there is in a line what no text has."""
    return _CONTROL.search(line) is not None


def failure(line: str) -> str | None:
    """Return what nvidia-smi complained about in this line; None when it is no complaint."""
    text = line.strip()
    return text[:160] if text.lower().startswith(_FAILURES) else None
