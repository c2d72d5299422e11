"""Frames in a file: kind, length, CRC, payload. What is torn or damaged ends the reading; it never raises."""

from __future__ import annotations

import struct
import zlib
from typing import IO

MAX_FRAME = 8 << 20  # bytes
HEADER, DATA, END = b"H", b"D", b"E"
_HEAD = struct.Struct("<cII")


def write(file: IO[bytes], kind: bytes, payload: bytes) -> int:
    """Append a frame and return its size; OSError where that is not possible, and then part of it may be there."""
    crc = zlib.crc32(payload, zlib.crc32(kind))
    return write_all(file, _HEAD.pack(kind, len(payload), crc) + payload)


def write_all(file: IO[bytes], data: bytes) -> int:
    """Write all of ``data`` and return its size: a file without a buffer may take less at a time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    return len(data)


class Frames:
    """Reads frames one by one. ``torn``: why there are no more, empty where the file was closed in order. ``whole``:
    bytes of the frames that were read.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.torn = ""
        self.whole = 0

    def next(self) -> tuple[bytes, bytes] | None:
        """Return the next frame's kind and payload; None at the end or at the first one that is not whole."""
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            self.torn = "it ends without its last frame"
            return None
        kind, length, crc = _HEAD.unpack(head)
        if length > MAX_FRAME:
            self.torn = "a frame says that it is larger than any may be"
            return None
        payload = self._file.read(length)
        if len(payload) < length:
            self.torn = "its last frame is cut off"
            return None
        if zlib.crc32(payload, zlib.crc32(kind)) != crc:
            self.torn = "a frame is damaged"
            return None
        self.whole += len(head) + length
        return kind, payload
