"""Snapshot files: what is hostile is refused with one line and nothing of it runs; what is a snapshot is read."""

from __future__ import annotations

import contextlib
import copyreg
import gzip
import io
import json
import os
import pickle
import pickletools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.snapshot.analyse import analyse
from agent.snapshot.errors import SnapshotError
from agent.snapshot.load import load
from agent.snapshot.read import read
from tests.bed.snapshots import AllocatorBed, server_like, stacks, write

# The opcodes that hold data and do nothing.
DATA = {
    *(
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "EMPTY_DICT",
        "EMPTY_LIST",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
    ),
    *("SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINSTRING", "SHORT_BINSTRING"),
}


class Evil:
    """Would leave a file behind if anything ran."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


class Plain:
    def __init__(self) -> None:
        self.x = 1


def refused(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "s.pickle"
    path.write_bytes(data)
    with pytest.raises(SnapshotError) as caught:
        read(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(f"{path}: ")
    return text


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_that_calls_runs_nothing(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "ran"
    text = refused(tmp_path, pickle.dumps({"segments": [Evil(trace)]}, protocol))
    assert "refused, nothing was run" in text
    assert "GLOBAL" in text
    assert not trace.exists()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("GLOBAL", b"cos\nsystem\n."),
        ("STACK_GLOBAL", b"\x8c\x02os\x8c\x06system\x93."),
        ("INST", b"(S'true'\nios\nsystem\n."),
        ("INST", b"(\x8c\x04trueios\nsystem\n."),
        ("OBJ", b"(}o."),
        ("NEWOBJ", b"})\x81."),
        ("NEWOBJ_EX", b"})}\x92."),
        ("REDUCE", b"})R."),
        ("BUILD", b"}}b."),
        ("EXT1", b"\x82\x01."),
        ("EXT2", b"\x83\x01\x00."),
        ("EXT4", b"\x84\x01\x00\x00\x00."),
        ("PERSID", b"P1\n."),
        ("BINPERSID", b"K\x01Q."),
        ("NEXT_BUFFER", b"\x97."),
    ],
)
def test_each_opcode_that_does_more_than_hold_data_is_refused(tmp_path: Path, name: str, body: bytes) -> None:
    text = refused(tmp_path, b"\x80\x04" + body)
    assert "refused" in text
    assert name in text or body.startswith(b"(S")


def test_every_opcode_is_either_data_or_refused(tmp_path: Path) -> None:
    """What pickletools knows and we do not list is refused, a later protocol's opcodes too."""
    for opcode in pickletools.opcodes:
        if opcode.name in DATA:
            continue
        text = refused(tmp_path, b"\x80\x04" + opcode.code.encode("latin-1") + b"\x01\x00\x00\x00\x00\x00\x00\x00\x00.")
        assert "refused" in text, opcode.name
        assert opcode.name in text


def test_a_registered_extension_is_no_way_in(tmp_path: Path) -> None:
    copyreg.add_extension("tests.unit.test_snapshot_load", "Plain", 240)
    try:
        data = pickle.dumps(Plain(), protocol=2)
        assert b"\x82\xf0" in data
        pickle.loads(data)  # noqa: S301  # now it is in the interpreter's cache, which find_class is not asked about
        assert "EXT1" in refused(tmp_path, data)
    finally:
        copyreg.remove_extension("tests.unit.test_snapshot_load", "Plain", 240)


@pytest.mark.parametrize(
    "bomb",
    [
        b"\x80\x04X" + struct.pack("<I", 0xFFFFFFF0) + b"x.",
        b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"x.",
        b"\x80\x04\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"x.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x.",
        b"\x80\x04B" + struct.pack("<I", 0xFFFFFFF0) + b"x.",
        b"\x80\x04\x95" + struct.pack("<Q", 1 << 39) + b"}.",
        b"\x80\x02}r" + struct.pack("<I", 0xFFFFFFF0) + b".",
        b"\x80\x02}r" + struct.pack("<I", 0x00FFFFFF) + b".",
    ],
    ids=["BINUNICODE", "BINUNICODE8", "LONG4", "BYTEARRAY8", "BINBYTES", "FRAME", "memo", "memo of 16 million"],
)
def test_lengths_beyond_the_file_take_no_memory(tmp_path: Path, bomb: bytes) -> None:
    text = refused(tmp_path, bomb)
    assert "refused" in text or "a frame of" in text


@pytest.mark.parametrize("filler", [b"}", b"]", b"]0"])
def test_a_file_of_empty_containers_is_refused(tmp_path: Path, filler: bytes) -> None:
    assert "unfold" in refused(tmp_path, b"\x80\x04(" + filler * 3_000_000 + b"t.")


def test_nested_references_are_gone_through_once_only(tmp_path: Path) -> None:
    """A thousand references to a segment of a thousand references to a block: a million blocks out of a few KiB."""
    block = {"size": 512, "state": "inactive"}
    segment = {"total_size": 512_000, "address": 0, "blocks": [block] * 1000}
    assert "repeats" in refused(tmp_path, pickle.dumps([segment] * 1000))


def test_depth_and_cycles_end_with_a_line(tmp_path: Path) -> None:
    refused(tmp_path, b"\x80\x04" + b"]" * 200_000 + b"a" * 199_999 + b".")
    refused(tmp_path, b"[" * 200_000 + b"]" * 200_000)
    cycle: list[Any] = []
    cycle.append(cycle)
    refused(tmp_path, pickle.dumps(cycle))
    row: dict[str, Any] = {}
    row["segments"] = [row]
    refused(tmp_path, pickle.dumps(row))


@given(st.binary(max_size=200))
def test_garbage_is_one_line(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage"
    for prefix in (b"", b"\x80\x04", b"\x1f\x8b", b"{"):
        path.write_bytes(prefix + data)
        with pytest.raises(SnapshotError) as caught:
            read(path)
        assert "\n" not in str(caught.value)


@given(st.integers(0, 5000), st.integers(0, 255))
def test_a_damaged_snapshot_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged"
    data = bytearray(_small_snapshot())
    data[at % len(data)] = byte
    path.write_bytes(data)
    with contextlib.suppress(SnapshotError):
        read(path)


def _small_snapshot() -> bytes:
    bed = AllocatorBed()
    addresses = [bed.alloc(size << 16, frames) for size, frames in enumerate(stacks(20), start=1)]
    for address in addresses[::2]:
        bed.free(address)
    return pickle.dumps(bed.snapshot())


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, inner in items:
        yield from _places(inner, (*place, key))


def _with(value: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    inner = _with(value[place[0]], place[1:], odd)
    if isinstance(value, dict):
        return value | {place[0]: inner}
    return type(value)(inner if n == place[0] else old for n, old in enumerate(value))


@pytest.mark.parametrize("odd", [None, True, -1, 2**70, 1.5, "odd", [], [[]], {}, {"odd": {}}], ids=repr)
def test_whatever_stands_in_any_place_it_is_read_or_refused(tmp_path: Path, odd: Any) -> None:
    """Each place of a small snapshot, segments, blocks, frames and traces, gets a value of another kind."""
    bed = AllocatorBed()
    first, _ = (bed.alloc(size << 16, frames) for size, frames in enumerate(stacks(2, depth=2), start=1))
    bed.free(first)
    snapshot = bed.snapshot()
    path, places = tmp_path / "odd.json", list(_places(snapshot))
    assert len(places) > 100
    for place in places:
        path.write_bytes(pickle.dumps(_with(snapshot, place, odd)))
        with contextlib.suppress(SnapshotError):
            analyse(read(path), "odd")


def test_cut_files_say_so(tmp_path: Path) -> None:
    data = _small_snapshot()
    assert "cut off" in refused(tmp_path, data[: len(data) // 2])
    assert "cut off" in refused(tmp_path, gzip.compress(data)[:-20])
    assert "empty" in refused(tmp_path, b"")
    assert "neither" in refused(tmp_path, b"hello")
    assert "zip" in refused(tmp_path, b"PK\x03\x04....")


def test_the_limit_holds_for_what_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"{" + b" " * (64 << 20)))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(SnapshotError, match="--max-mib"):
        load(path, limit=1 << 20)
    with pytest.raises(SnapshotError, match="not JSON"):
        load(path, limit=1 << 30)


def test_no_pipe_and_no_folder_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent"):
        with pytest.raises(SnapshotError):
            read(path)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_real_files_of_each_protocol_and_packing_give_the_same(tmp_path: Path, protocol: int) -> None:
    bed = server_like(200)
    plain = read(write(bed.snapshot(), tmp_path / "a", protocol))
    packed = tmp_path / "b.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a").read_bytes()))
    text = tmp_path / "c"
    text.write_text(json.dumps(bed.snapshot()))
    for other in (read(packed), read(text)):
        assert other.segments == plain.segments
        assert other.traces == plain.traces
        assert other.stacks == plain.stacks


def test_members_of_a_gzip_are_joined(tmp_path: Path) -> None:
    data = _small_snapshot()
    path = tmp_path / "two.gz"
    path.write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    assert load(path)[1] == len(data)


def test_a_pickle_without_frames_or_with_unshared_text_is_read(tmp_path: Path) -> None:
    """As the C++ pickler of torch writes: protocol 2, no frames; and as a pickler without a memo does."""
    target = io.BytesIO()
    pickler = pickle.Pickler(target, protocol=2)
    pickler.fast = True
    pickler.dump(server_like(50).snapshot())
    path = tmp_path / "fast"
    path.write_bytes(target.getvalue())
    assert read(path).segments
