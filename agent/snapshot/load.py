"""Reads a snapshot file into plain Python data: a pickle or JSON, gzip or not, told apart by content."""

from __future__ import annotations

import io
import pickle
import stat
import zlib
from pathlib import Path
from typing import Any

import msgspec

from agent.snapshot import opcodes
from agent.snapshot.errors import SnapshotError

DEFAULT_LIMIT = 1 << 30
_GZIP = b"\x1f\x8b"
_PICKLE = b"\x80"  # since protocol 2
_ZIP = b"PK\x03\x04"
_CHUNK = 1 << 20


class _NoClasses(pickle.Unpickler):
    """The second lock: the opcodes were looked at already, and still nothing may be found."""

    def find_class(self, module: str, name: str) -> Any:
        raise SnapshotError(f"refused, nothing was run: the pickle names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise SnapshotError("refused, nothing was run: the pickle asks for an object from outside")


def load(path: Path, limit: int = DEFAULT_LIMIT) -> tuple[Any, int, bool]:
    """Return what the file holds, its size in bytes once unpacked, and whether equal parts are one object (a pickle).

    ``limit``: how large it may be, unpacked. Raises :class:`SnapshotError` with one line. Runs no code of the file,
    and takes no more memory than some multiple of it.
    """
    data = _read(path, limit)
    size = len(data)
    if not data.strip(b" \t\r\n"):
        raise SnapshotError("is empty")
    if data.startswith(_PICKLE):
        opcodes.check_pickle(data)
        return _unpickle(data), size, True
    if data.startswith(_ZIP):
        raise SnapshotError("is a zip file, such as torch.save() writes; a snapshot is written by _dump_snapshot()")
    if data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in {b"{", b"["}:
        raise SnapshotError("is neither a pickle (protocol 2 or later) nor JSON")
    opcodes.check_json(data)
    try:
        return msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf")), size, False
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise SnapshotError(f"is not JSON: {_line(error)}") from None


def _unpickle(data: bytes) -> Any:
    # A reader that can peek: without it the unpickler asks for each opcode by itself where there are no frames.
    reader = io.BufferedReader(io.BytesIO(data), _CHUNK)
    try:
        return _NoClasses(reader).load()
    except SnapshotError:
        raise
    except MemoryError:
        raise SnapshotError("does not fit into memory") from None
    except Exception as error:  # what a garbled pickle can raise has no end
        raise SnapshotError(f"the pickle is garbled: {_line(error)}") from None


def _read(path: Path, limit: int) -> bytes:
    try:
        # A pipe would be waited for, a device has no end.
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise SnapshotError("is not a file")
        with path.open("rb") as file:
            data = file.read(min(limit, about.st_size) + 1)
    except OSError as error:
        raise SnapshotError(f"can't be read: {error.strerror or error}") from None
    if data.startswith(_GZIP):
        data = _unpack(data, limit)
    if len(data) > limit:
        raise SnapshotError(f"is larger than {limit >> 20:,} MiB; --max-mib allows more")
    return data


def _unpack(data: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest = data
    try:
        while rest:  # a gzip file may have several members
            unzip = zlib.decompressobj(wbits=31)
            while rest and not unzip.eof:
                parts.append(unzip.decompress(rest, _CHUNK))
                rest = unzip.unconsumed_tail
                size += len(parts[-1])
                if size > limit:
                    return b"".join(parts)
            if not unzip.eof:
                raise SnapshotError("the gzip is cut off")
            rest = unzip.unused_data.lstrip(b"\0")
    except zlib.error as error:
        raise SnapshotError(f"the gzip is garbled: {_line(error)}") from None
    return b"".join(parts)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
