"""A bundle gives back what was written, up to a tear, and refuses what is none."""

from __future__ import annotations

import contextlib
import io
import struct
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.bundle import format as bundles
from agent.bundle import frames, packing
from agent.bundle.format import BundleError, Change, Header, Label, Usuals, Writer, bare, cut_tail, is_bundle, read
from agent.bundle.header import MAJOR
from agent.bundle.records import MAX_RECORD, RECORD
from agent.signals.baseline import Baselines, Usual
from agent.subject import Subject
from tests.unit.builders import make_state, make_verdict
from tests.unit.recordings import leaking, moment, written

CODECS = [packing.ZSTD, packing.ZLIB]
HEADER = Header(
    why="a test",
    host="node",
    created_at=5.0,
    profile="textbook",
    policy="{}",
    labelled=True,
    labels=(Label(kind="kv_orphan", onset=50_003.0, subject=Subject(scope="engine", engine="m"), unseen=True),),
    about={"seed": "7"},
)


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(packing, "best", lambda: request.param)
    return str(request.param)


def crafted(path: Path, codec: str, stream: bytes, *, header: Header = HEADER) -> Path:
    """A file whose stream is ``stream``, packed in one piece."""
    with path.open("wb") as file:
        file.write(b"KVTIDE" + bytes((MAJOR, 0)))
        frames.write(file, frames.HEADER, msgspec.msgpack.encode(msgspec.structs.replace(header, codec=codec)))
        frames.write(file, frames.DATA, packing.packer(codec).pack(stream))
        frames.write(file, frames.END, b"")
    return path


def test_what_was_written_is_read(tmp_path: Path, codec: str) -> None:
    records = [
        Usuals(baselines=Baselines(engines={"m": {"context": Usual(value=800.0, count=40)}})),
        make_state(),
        Change(monotonic=50_000.0, verdict=make_verdict()),
        Change(monotonic=50_000.0, verdict=make_verdict(), standing=True),
        make_state(monotonic=50_001.0),
    ]
    with Writer(tmp_path / "a", HEADER) as writer:
        for record in records:
            writer.record(record)
    assert writer.states == 2
    assert writer.size == (tmp_path / "a").stat().st_size
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    bundle = read(tmp_path / "a")
    assert bundle.header == msgspec.structs.replace(HEADER, codec=codec)
    assert list(bundle.records()) == [records[0], bare(records[1]), *records[2:4], bare(records[4])]
    assert [state.monotonic for state in bundle.states()] == [50_000.0, 50_001.0]
    assert len(list(bundle.changes())) == 2
    assert bundle.torn == ""
    assert cut_tail(tmp_path / "a") == 0


def test_what_is_of_the_agent_is_left_out() -> None:
    state = bare(make_state())
    assert (state.judgement, state.recorder, state.judge_errors, state.link.socket) == (None, None, {}, "")
    assert all(engine.verdicts == () for engine in state.engines)
    assert state.device == make_state().device


def test_an_open_file_stays_open() -> None:
    file = io.BytesIO()
    with Writer(file, HEADER) as writer:
        writer.state(moment(0))
    assert len(file.getvalue()) == writer.size


@pytest.mark.parametrize("codec", CODECS, indirect=True)
def test_a_torn_file_is_read_up_to_the_tear(tmp_path: Path, codec: str) -> None:
    path = written(tmp_path / "a", leaking(8, 3))
    whole = list(read(path).states())
    content = path.read_bytes()
    sizes = set()
    for size in range(len(content) - 1, len(content) // 2, -7):
        path.write_bytes(content[:size])
        bundle = read(path)
        found = list(bundle.states())
        assert found == whole[: len(found)]
        assert bundle.torn in ("it ends without its last frame", "its last frame is cut off")
        sizes.add(len(found))
        cut = cut_tail(path)
        assert cut is not None
        assert path.stat().st_size == size - cut
        assert list(read(path).states()) == found
    assert len(sizes) > 3, "it was cut in several states"


def test_a_damaged_frame_ends_the_reading(tmp_path: Path, codec: str) -> None:
    path = written(tmp_path / "a", leaking(8, 3))
    content = bytearray(path.read_bytes())
    content[-10] ^= 1  # the last byte before the end
    path.write_bytes(content)
    bundle = read(path)
    assert len(list(bundle.states())) == 7
    assert bundle.torn == "a frame is damaged"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not a kvtide bundle"),
        (b"KVTID", "is not a kvtide bundle"),
        (b"timestamp, index\n", "is not a kvtide bundle"),
        (b"KVTIDE\x02\x00" + b"x" * 50, "is of format 2.0, this kvtide reads 1.x; use a newer kvtide"),
        (b"KVTIDE\x01\x00", "has no header: it ends without its last frame"),
        (b"KVTIDE\x01\x00" + struct.pack("<cII", b"H", 1 << 30, 0), "has no header: a frame says that it is larger"),
        (b"KVTIDE\x01\x00" + struct.pack("<cII", b"E", 0, zlib.crc32(b"E")), "has no header: its first frame is anot"),
        (b"KVTIDE\x01\x00" + struct.pack("<cII", b"H", 1, zlib.crc32(b"H\xc0")) + b"\xc0", "its header can't be read"),
    ],
)
def test_what_is_no_bundle_is_refused_in_one_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(BundleError) as refusal:
        read(path)
    assert str(refusal.value).startswith(f"{path}: {why}")
    assert "\n" not in str(refusal.value)
    assert is_bundle(path) == content.startswith(b"KVTIDE")


def test_a_file_that_is_not_there_or_none(tmp_path: Path) -> None:
    assert not is_bundle(tmp_path / "a")
    assert not is_bundle(tmp_path)
    with pytest.raises(BundleError, match="No such file"):
        read(tmp_path / "a")
    with pytest.raises(BundleError, match="is not a file"):
        read(tmp_path)


def test_a_newer_minor_format_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a", leaking(3, 1))
    content = bytearray(path.read_bytes())
    content[7] = 9
    path.write_bytes(content)
    assert len(list(read(path).states())) == 3


def test_records_that_are_not_known_are_passed_over(tmp_path: Path, codec: str) -> None:
    with Writer(tmp_path / "a", HEADER) as writer:
        writer.raw(77, b"of tomorrow")
        writer.state(moment(0))
    assert len(list(read(tmp_path / "a").records())) == 1


@pytest.mark.parametrize("codec", CODECS, indirect=True)
@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (RECORD.pack(1, MAX_RECORD + 1), "a record of 8,388,609 bytes is larger than any may be"),
        (RECORD.pack(1, 4) + b"\xc1abc", "a record can't be read"),
        (RECORD.pack(1, 100_000) + b"\x91" * 100_000, "a record can't be read"),  # lists in lists in lists
        (RECORD.pack(2, 1) + b"\x80", "a record can't be read: Object missing required field `monotonic`"),
    ],
)
def test_hostile_records_are_refused(tmp_path: Path, codec: str, stream: bytes, why: str) -> None:
    bundle = read(crafted(tmp_path / "a", codec, stream))
    with pytest.raises(BundleError) as refusal:
        list(bundle.records())
    assert str(refusal.value).startswith(f"{tmp_path / 'a'}: {why}")


def test_a_state_outside_of_time_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "a", iter([moment(float("nan"))]))
    with pytest.raises(BundleError, match="a state's time is no time"):
        list(read(path).states())


@pytest.mark.parametrize("codec", CODECS, indirect=True)
def test_a_bomb_takes_little_more_than_a_record(tmp_path: Path, codec: str) -> None:
    path = crafted(tmp_path / "a", codec, RECORD.pack(77, MAX_RECORD) + bytes(256 << 20))
    assert path.stat().st_size < 2 << 20
    tracemalloc.start()
    try:
        kind, body = next(read(path).raw())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (kind, len(body)) == (77, MAX_RECORD)
    assert most < 8 * MAX_RECORD


def test_no_more_records_than_any_file_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "MAX_RECORDS", 3)
    bundle = read(written(tmp_path / "a", leaking(5, 1)))
    assert len(list(bundle.states())) == 3
    assert bundle.torn == "only its first 3 records were read"


def test_a_record_that_is_too_large_is_not_written(tmp_path: Path) -> None:
    with Writer(tmp_path / "a", HEADER) as writer:
        with pytest.raises(BundleError, match="larger than any may be"):
            writer.raw(1, bytes(MAX_RECORD + 1))
        writer.state(moment(0))
    assert len(list(read(tmp_path / "a").states())) == 1


def test_a_codec_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.write(b"KVTIDE" + bytes((MAJOR, 0)))
        frames.write(file, frames.HEADER, msgspec.msgpack.encode(msgspec.structs.replace(HEADER, codec="lz9")))
    with pytest.raises(BundleError, match="is packed with 'lz9', which this version does not know"):
        list(read(path).states())


def test_without_zstandard_bundles_are_written_by_zlib_and_zstd_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = written(tmp_path / "zstd", leaking(3, 1))
    monkeypatch.setattr(packing, "_zstandard", lambda: None)
    theirs = read(written(tmp_path / "zlib", leaking(3, 1)))
    assert theirs.header.codec == packing.ZLIB
    assert len(list(theirs.states())) == 3
    with pytest.raises(BundleError, match="the package zstandard is not installed here"):
        list(read(ours).states())


@given(junk=st.binary(max_size=400), codec=st.sampled_from(CODECS))
def test_junk_is_refused_and_never_more_than_that(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, codec: str
) -> None:
    path = tmp_path_factory.mktemp("junk") / "a"
    with path.open("wb") as file:
        file.write(b"KVTIDE" + bytes((MAJOR, 0)))
        frames.write(file, frames.HEADER, msgspec.msgpack.encode(msgspec.structs.replace(HEADER, codec=codec)))
        frames.write(file, frames.DATA, junk)
    found = []
    with contextlib.suppress(BundleError):
        found = list(read(path).states())
    assert found == []
