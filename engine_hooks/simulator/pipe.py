"""What goes over the pipe between the agent's side and ours: messages with a length before each."""

from __future__ import annotations

import struct
from typing import IO, Any

import msgspec

MAX_ITEM_BYTES = 1 << 20
_LENGTH = struct.Struct("<I")

HELLO, REPORT, DETAIL, FRAME, GONE, TRUTH, FAILED, END = range(8)


class Item(msgspec.Struct, array_like=True, frozen=True):
    """Something at ``at`` (monotonic virtual seconds). ``kind`` and what ``body`` is then: HELLO, REPORT, DETAIL and
    FRAME (an encoded frame of the wire; the last is any other), GONE (nothing: the link ended), TRUTH (an encoded
    Truth), FAILED (why, as text), END (nothing).
    """

    at: float
    kind: int
    body: bytes = b""


class PipeError(Exception):
    """What came is no message; the text says why."""


_encoder = msgspec.msgpack.Encoder()
_items = msgspec.msgpack.Decoder(Item)


def write(stream: IO[bytes], message: Any) -> None:
    """Write one message; buffered as the stream is."""
    data = _encoder.encode(message)
    stream.write(_LENGTH.pack(len(data)))
    stream.write(data)


def read_bytes(stream: IO[bytes]) -> bytes | None:
    """Return the next message's bytes, None at the end; raises :class:`PipeError` where it ends within one."""
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise PipeError("it ended within a message")
    (length,) = _LENGTH.unpack(head)
    if length > MAX_ITEM_BYTES:
        raise PipeError(f"a message of {length} bytes")
    data = stream.read(length)
    if len(data) < length:
        raise PipeError("it ended within a message")
    return data


def read_item(stream: IO[bytes]) -> Item | None:
    """Return the next item, None at the end; raises :class:`PipeError`."""
    data = read_bytes(stream)
    try:
        return None if data is None else _items.decode(data)
    except msgspec.MsgspecError as error:
        raise PipeError(str(error)) from None
