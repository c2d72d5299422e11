"""Writes and reads bundles: a header, then states and what was said of them in one stream (docs/bundle.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO

import msgspec
from msgspec.structs import replace

from agent.bundle import frames, packing
from agent.bundle.errors import BundleError
from agent.bundle.header import MAJOR, MINOR, Change, Header, Label, Usuals
from agent.bundle.records import MAX_RECORD, RECORD, Record, bare, decoded, encoded, is_time
from agent.state import AgentState

__all__ = [
    "SUFFIX",
    "Bundle",
    "BundleError",
    "Change",
    "Header",
    "Label",
    "Record",
    "Usuals",
    "Writer",
    "bare",
    "cut_tail",
    "is_bundle",
    "read",
]

SUFFIX = ".kvtide"
MOST_LABELS = 1000
MAX_RECORDS = 4_000_000  # of one file: more than a month of seconds
_MAGIC = b"KVTIDE"
_START = len(_MAGIC) + 2  # and the version

_encoder = msgspec.msgpack.Encoder()
_headers = msgspec.msgpack.Decoder(Header)


class Writer:
    """Writes one bundle; also a context manager. What was written can be read at any moment, up to a torn end.

    ``file`` is a path, which is made anew for its owner alone, or an open binary file, which stays open. OSError where
    it can't be written. ``size`` is in bytes; ``states`` counts them.
    """

    def __init__(self, file: Path | str | IO[bytes], header: Header) -> None:
        self._own = isinstance(file, Path | str)
        self._file: IO[bytes] = _made(file) if isinstance(file, Path | str) else file
        self.size = 0
        self.states = 0
        codec = packing.best()
        self._packer = packing.packer(codec)
        try:
            self.size += frames.write_all(self._file, _MAGIC + bytes((MAJOR, MINOR)))
            self.size += frames.write(self._file, frames.HEADER, _encoder.encode(replace(header, codec=codec)))
        except OSError:
            self.abandon()
            raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def state(self, state: AgentState) -> None:
        """Append a state; raises :class:`BundleError` for one that is too large."""
        self.record(state)

    def record(self, record: Record) -> None:
        """Append a state, or what the live judge said or knew."""
        self.raw(*encoded(record))
        self.states += isinstance(record, AgentState)

    def raw(self, kind: int, body: bytes) -> None:
        """Append a record as :meth:`Bundle.raw` gives it."""
        if len(body) > MAX_RECORD:
            raise BundleError(f"a record of {len(body):,} bytes is larger than any may be ({MAX_RECORD:,})")
        self.size += frames.write(self._file, frames.DATA, self._packer.pack(RECORD.pack(kind, len(body)) + body))

    def close(self) -> None:
        """Write the end, which says that nothing is missing."""
        try:
            self.size += frames.write(self._file, frames.END, b"")
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file without an end."""
        if self._own:
            self._file.close()


class Bundle:
    """What a file has; each iterator reads it anew. ``torn``: why the last one ended too early, or empty."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path = path
        self.header = header
        self.torn = ""

    def states(self) -> Iterator[AgentState]:
        """Yield the states; raises :class:`BundleError` for what was never written by a :class:`Writer`."""
        return (record for record in self.records() if isinstance(record, AgentState))

    def changes(self) -> Iterator[Change]:
        """Yield what the live judge said."""
        return (record for record in self.records() if isinstance(record, Change))

    def records(self) -> Iterator[Record]:
        """Yield states, and what was said of each behind it."""
        for kind, body in self.raw():
            try:
                record = decoded(kind, body)
            except BundleError as error:
                raise BundleError(f"{self.path}: {error}") from None
            if record is not None:
                yield record

    def raw(self) -> Iterator[tuple[int, bytes]]:
        """Yield the kind and the bytes of each record, with those that this version does not know."""
        self.torn = ""
        with _open(self.path) as file:
            source = _begin(self.path, file)[1]
            try:
                yield from self._raw(source)
            except BundleError as error:
                raise BundleError(f"{self.path}: {error}") from None
        self.torn = self.torn or source.torn

    def _raw(self, source: frames.Frames) -> Iterator[tuple[int, bytes]]:
        stream = packing.unpacker(self.header.codec, lambda: _data(source))
        for _ in range(MAX_RECORDS):
            head = stream.read(RECORD.size)
            if len(head) < RECORD.size:
                return
            kind, length = RECORD.unpack(head)
            if length > MAX_RECORD:
                raise BundleError(f"a record of {length:,} bytes is larger than any may be ({MAX_RECORD:,})")
            body = stream.read(length)
            if len(body) < length:
                return
            yield kind, body
        self.torn = f"only its first {MAX_RECORDS:,} records were read"


def is_bundle(path: Path) -> bool:
    """Return whether the file at ``path`` begins as a bundle does; what is no file, such as a pipe, is not touched."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read(path: Path | str) -> Bundle:
    """Return the bundle at ``path``; raises :class:`BundleError` where that is none, or one of a later format."""
    path = Path(path)
    with _open(path) as file:
        return Bundle(path, _begin(path, file)[0])


def cut_tail(path: Path) -> int | None:
    """Cut off what a crash has left behind the last whole frame; return how many bytes, None where no header is."""
    try:
        with _open(path) as file:
            source = _begin(path, file)[1]
            while source.next() is not None:
                pass
    except BundleError:
        return None
    surplus = path.stat().st_size - _START - source.whole
    if surplus:
        os.truncate(path, _START + source.whole)
    return surplus


def _made(path: Path | str) -> IO[bytes]:
    return open(path, "wb", buffering=0, opener=lambda name, flags: os.open(name, flags, 0o600))


def _open(path: Path) -> IO[bytes]:
    try:
        if path.exists() and not path.is_file():
            raise BundleError(f"{path}: is not a file")
        return path.open("rb")
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror}") from None


def _begin(path: Path, file: IO[bytes]) -> tuple[Header, frames.Frames]:
    head = file.read(_START)
    if len(head) < _START or not head.startswith(_MAGIC):
        raise BundleError(f"{path}: is not a kvtide bundle")
    major, minor = head[len(_MAGIC) :]
    if major != MAJOR:
        raise BundleError(f"{path}: is of format {major}.{minor}, this kvtide reads {MAJOR}.x; use a newer kvtide")
    source = frames.Frames(file)
    first = source.next()
    if first is None or first[0] != frames.HEADER:
        raise BundleError(f"{path}: has no header: {source.torn or 'its first frame is another'}")
    try:
        header = _headers.decode(first[1])
        if not all(is_time(label.onset) and is_time(label.ended or 0.0) for label in header.labels):
            raise BundleError(f"{path}: its header can't be read: a label's time is no time")
        if len(header.labels) > MOST_LABELS:
            raise BundleError(f"{path}: has {len(header.labels):,} labels, and {MOST_LABELS:,} are read")
        return header, source
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BundleError(f"{path}: its header can't be read: {error}") from None


def _data(source: frames.Frames) -> bytes:
    """Return the next piece of the stream; nothing at its end."""
    while (frame := source.next()) is not None:
        kind, payload = frame
        if kind == frames.END:
            return b""
        if kind == frames.DATA and payload:
            return payload
    return b""
