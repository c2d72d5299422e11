"""Reads a pickle's opcodes before anything is made of it: only what plain data needs may be there.

A pickle is a program. Snapshots need ints, floats, text, lists, tuples and dicts; whatever names a class, calls, sets
attributes, takes an extension or a persistent id is refused here, before the first object is made. So is what would
take memory out of proportion to the file: lengths that reach past the end, a memo with holes, and containers so dense
that they unfold to many times the file.
"""

from __future__ import annotations

import pickletools
import re

from agent.snapshot.errors import SnapshotError

# What a container takes at least once something is in it, by its first byte; how many there are is not more than
# how often that byte occurs.
_PICKLE_COST = {b"}": 248, b"]": 88, b"t": 72, b"\x85": 72, b"\x86": 72, b"\x87": 72}
_JSON_COST = {b"{": 248, b"[": 88}
_UNFOLDS = 32  # times the file: a real snapshot takes up to 17 by this count
_SMALL = 64 << 20  # bytes that are no danger, whatever the ratio

# Opcodes of fixed length that plain data needs, as many in a row as there are. Possessive: nothing is tried again.
# LONG_BINPUT stands here for the first million memo entries, LONG1 for up to eight bytes.
_PLAIN = re.compile(
    rb"(?:h.|j....|[\x94\]}(uesat\x85-\x89N)]|K.|J....|M..|q.|r..[\x00-\x0f]\x00|G.{8}"
    rb"|\x8a(?:\x06.{6}|\x05.{5}|\x07.{7}|\x08.{8}|\x04.{4}|\x03.{3}|\x02..|\x01.|\x00))*+",
    re.DOTALL,
)
_PROTO, _FRAME, _STOP, _LONG_BINPUT, _LONG1 = 0x80, 0x95, 0x2E, 0x72, 0x8A
# Text: how many bytes its length takes.
_TEXT = {0x8C: 1, 0x58: 4, 0x8D: 8, 0x55: 1, 0x54: 4}
_LONGEST_INT = 32  # bytes
_NAMES = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_WHY = {
    "GLOBAL": "it names a class or function",
    "STACK_GLOBAL": "it names a class or function",
    "INST": "it makes an object of a class",
    "OBJ": "it makes an object of a class",
    "NEWOBJ": "it makes an object of a class",
    "NEWOBJ_EX": "it makes an object of a class",
    "REDUCE": "it calls a function",
    "BUILD": "it sets an object's attributes",
    "EXT1": "it takes an object out of a registry",
    "EXT2": "it takes an object out of a registry",
    "EXT4": "it takes an object out of a registry",
    "PERSID": "it asks for an object from outside",
    "BINPERSID": "it asks for an object from outside",
    "NEXT_BUFFER": "it asks for an object from outside",
}


def check_pickle(data: bytes) -> None:
    """Raise :class:`SnapshotError` unless ``data`` begins with a pickle of plain data. Takes 20 ns a byte."""
    check_density(data, _PICKLE_COST)
    at = 0
    try:
        while True:
            match = _PLAIN.match(data, at)
            at = match.end() if match else at
            opcode = data[at]
            if opcode == _STOP:
                return
            at += _length(data, at, opcode)
            if at >= len(data):
                raise IndexError
    except IndexError:
        raise SnapshotError(f"the pickle is cut off at {len(data):,} bytes") from None


def check_json(data: bytes) -> None:
    """Raise :class:`SnapshotError` when this JSON would unfold to many times its size."""
    check_density(data, _JSON_COST)


def check_density(data: bytes, cost: dict[bytes, int]) -> None:
    """Raise :class:`SnapshotError` when the containers that ``data`` may hold take far more than ``data`` itself."""
    memory = sum(data.count(first) * size for first, size in cost.items())
    if memory > _UNFOLDS * len(data) + _SMALL:
        raise SnapshotError(
            f"refused: {len(data) >> 20:,} MiB that would unfold to {memory >> 20:,} MiB of empty containers; "
            "no snapshot does"
        )


def _length(data: bytes, at: int, opcode: int) -> int:
    """Return the length of the one opcode at ``at`` that is not of fixed length, or refuse it."""
    if opcode in _TEXT:
        width = _TEXT[opcode]
        size = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        if at + 1 + width + size > len(data):
            raise SnapshotError(
                f"refused: the pickle says at byte {at:,} that {size:,} bytes of text follow; the file ends before that"
            )
        return 1 + width + size
    if opcode == _PROTO:
        return 2
    if opcode == _FRAME:
        size = int.from_bytes(data[at + 1 : at + 9], "little")
        if at + 9 + size > len(data):
            raise SnapshotError(f"the pickle is cut off: a frame of {size:,} bytes begins at byte {at:,}")
        return 9
    if opcode == _LONG_BINPUT:
        # Picklers number what they keep; each takes six bytes at least. A hole would be filled with memory.
        index = int.from_bytes(data[at + 1 : at + 5], "little")
        if index * 6 > at + 1536:
            raise SnapshotError(f"refused: the pickle asks at byte {at:,} for a memo of {index:,} entries")
        return 5
    if opcode == _LONG1 and data[at + 1] <= _LONGEST_INT:
        return 2 + data[at + 1]
    name = _NAMES.get(opcode)
    if name is None:
        raise SnapshotError(f"the pickle is garbled: there is no opcode {opcode:#04x} (byte {at:,})")
    if why := _WHY.get(name):
        raise SnapshotError(
            f"refused, nothing was run: at byte {at:,} the pickle holds {name}: {why}. No snapshot does"
        )
    raise SnapshotError(f"refused: {name} at byte {at:,} of the pickle is not in any snapshot that torch writes")
