"""Compression of a bundle's stream. One stream per file: a state repeats most of the one before it.

zstd's window spans many states: on a node of 8 engines and 8 GPUs it takes a seventh of a millisecond to make 116 kB
into 4.5 kB, where zlib (window 32 kB) takes five times as long for more than three times as much. zlib is for
environments without zstandard, such as an engine's.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Protocol

from agent.bundle.errors import BundleError

ZSTD, ZLIB = "zstd", "zlib"
_LEVEL = {ZSTD: 1, ZLIB: 1}
_WINDOW_BITS = 20  # 1 MiB: some states of a large node
_FILLS = (1 << _WINDOW_BITS) + (1 << 18)  # bytes: the window, and the blocks behind it
_MAX_WINDOW = 8 << 20  # bytes that a reader gives to a window
_STEP = 1 << 16
# zstd's object gives all that a piece holds at once, up to 128 KiB for each 4 bytes of it: so it gets small pieces.
_BITE = 256


class Packer(Protocol):
    """Compresses one stream."""

    def pack(self, data: bytes) -> bytes:
        """Return bytes from which all that was packed so far can be unpacked."""
        ...


class Unpacker(Protocol):
    """Decompresses one stream, never more of it than is asked for."""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the stream's end; raises :class:`BundleError` for what is no stream."""
        ...


def best() -> str:
    """Return the name of the codec to write with here."""
    return ZSTD if _zstandard() is not None else ZLIB


def packer(codec: str) -> Packer:
    """Return a packer for ``codec``, one of :func:`best`'s."""
    return _ZstdPacker() if codec == ZSTD else _ZlibPacker()


def unpacker(codec: str, source: Callable[[], bytes]) -> Unpacker:
    """Return an unpacker; ``source`` gives the next piece of the stream, nothing at its end."""
    if codec == ZLIB:
        return _ZlibUnpacker(source)
    if codec != ZSTD:
        raise BundleError(f"is packed with {codec[:20]!r}, which this version does not know")
    if _zstandard() is None:
        raise BundleError("is packed with zstd, and the package zstandard is not installed here")
    return _ZstdUnpacker(source)


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        return None


class _ZstdPacker:
    def __init__(self) -> None:
        zstd = _zstandard()
        parameters = zstd.ZstdCompressionParameters.from_level(_LEVEL[ZSTD], window_log=_WINDOW_BITS)
        compressor = zstd.ZstdCompressor(compression_params=parameters)
        # Its window is memory that comes to be in RAM as the stream fills it. A recorder's coarse file takes an hour
        # to, and an agent that grows for so long looks like one that leaks: so it is filled once, with nothing.
        compressor.compressobj().compress(bytes(_FILLS))
        self._stream = compressor.compressobj()
        self._flush = zstd.COMPRESSOBJ_FLUSH_BLOCK

    def pack(self, data: bytes) -> bytes:
        """See :class:`Packer`."""
        packed: bytes = self._stream.compress(data) + self._stream.flush(self._flush)
        return packed


class _ZlibPacker:
    def __init__(self) -> None:
        self._stream = zlib.compressobj(_LEVEL[ZLIB])

    def pack(self, data: bytes) -> bytes:
        """See :class:`Packer`."""
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class _ZstdUnpacker:
    def __init__(self, source: Callable[[], bytes]) -> None:
        zstd = _zstandard()
        self._error = zstd.ZstdError
        self._source = source
        self._stream = zstd.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()
        self._packed = memoryview(b"")
        self._held = bytearray()

    def read(self, size: int) -> bytes:
        """See :class:`Unpacker`."""
        while len(self._held) < size:
            if not self._packed and not (piece := self._source()):
                break
            if not self._packed:
                self._packed = memoryview(piece)
            try:
                self._held += self._stream.decompress(self._packed[:_BITE])
            except self._error as error:
                raise BundleError(f"can't be unpacked: {error}") from None
            self._packed = self._packed[_BITE:]
        data = bytes(self._held[:size])
        del self._held[:size]
        return data


class _ZlibUnpacker:
    def __init__(self, source: Callable[[], bytes]) -> None:
        self._source = source
        self._stream = zlib.decompressobj()
        self._held = b""

    def read(self, size: int) -> bytes:
        """See :class:`Unpacker`."""
        parts, missing = [], size
        while missing:
            if not self._held and not (piece := self._source()):
                break
            if not self._held:
                self._held = piece
            try:
                part = self._stream.decompress(self._held, min(missing, _STEP))
            except zlib.error as error:
                raise BundleError(f"can't be unpacked: {error}") from None
            self._held = self._stream.unconsumed_tail
            parts.append(part)
            missing -= len(part)
            if self._stream.eof:
                break
        return b"".join(parts)
