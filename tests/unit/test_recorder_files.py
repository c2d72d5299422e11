"""The flight recorder: what it keeps, for how long, in how many bytes, and what it does when the disk refuses."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.bundle import frames
from agent.bundle.format import BundleError, read
from agent.recorder import series, store
from tests.unit.recorders import HEADER, feed, files, kept_in, monotonic_of
from tests.unit.recordings import AT, leaking, moment

DAY, YEAR = 86400.0, 365 * 86400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def test_every_state_is_kept_and_one_a_minute(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, leaking(150, 1000))
    assert monotonic_of(files(folder, "full")) == list(range(150))
    assert monotonic_of(files(folder, "coarse")) == [0, 60, 120]
    assert (kept.state.states_total, kept.state.dropped_total, kept.state.recording) == (150, 0, True)
    kept.close(b"")
    assert read(files(folder, "full")[0]).header == replace(HEADER, created_at=AT, codec="zstd")


def test_what_is_old_is_thrown_away(folder: Path) -> None:
    kept = kept_in(folder, full_seconds=600.0, coarse_seconds=7 * 3600.0)

    for second in range(0, 8 * 3600, 30):
        feed(kept, [moment(second)])
    full, coarse = monotonic_of(files(folder, "full")), monotonic_of(files(folder, "coarse"))
    last = 8 * 3600 - 30
    assert full[-1] == last
    assert 600 <= last - full[0] <= 600 + store.FULL_CHUNK_SECONDS + store.TIDY_SECONDS
    assert coarse[0] == 0, "the first chunk of six hours is not yet older than seven"
    assert coarse[-1] >= last - 60


@pytest.mark.parametrize("jump", [YEAR, -YEAR, 0.0])
def test_a_clock_that_is_set_makes_nothing_old(folder: Path, jump: float) -> None:
    kept = kept_in(folder, full_seconds=600.0, coarse_seconds=7 * 3600.0)
    feed(kept, (moment(second) for second in range(0, 6000, 30)))
    feed(kept, [moment(6000, at=AT + 6000 + jump), moment(6060, at=AT + 6060 + jump)])
    full = monotonic_of(files(folder, "full"))
    assert 6060 - 600 - store.FULL_CHUNK_SECONDS <= full[0] <= 6060 - 600
    assert monotonic_of(files(folder, "coarse"))[0] == 0
    feed(kept, [moment(9000, at=AT + 9000 + jump), moment(9060, at=AT + 9060 + jump)])
    assert monotonic_of(files(folder, "full")) == [9000, 9060], "what is old by the clock that is never set goes"


@pytest.mark.parametrize("jump", [YEAR, -YEAR])
def test_a_clock_that_was_wrong_when_the_agent_began_costs_nothing_of_the_agent_before(
    folder: Path, jump: float
) -> None:
    limits = {"full_seconds": 600.0, "coarse_seconds": 3 * DAY}
    first = kept_in(folder, **limits)
    for number in range(4 * 24):  # half an hour apart: two days
        feed(first, [moment(1800.0 * number)])
        for path in files(folder, "coarse"):
            if path.stat().st_mtime > AT + YEAR:  # written just now, by the clock of this machine
                os.utime(path, (AT + 1800.0 * number,) * 2)
    first.close(b"")
    kept = files(folder, "coarse")
    os.utime(kept[-1], (AT + 2 * DAY,) * 2)
    second = kept_in(folder, **limits)

    def later(seconds: float) -> None:  # after a boot: both clocks have begun anew
        feed(second, [moment(0, monotonic=100.0 + seconds, at=AT + jump + seconds, started_at=AT + jump)])

    for hour in range(24):
        later(3600.0 * hour)
    assert [path.name for path in kept if not path.exists()] == [], "two days are recorded, three may be kept"
    for hour in range(24, 48):
        later(3600.0 * hour)
    gone = [path for path in kept if not path.exists()]
    assert gone == kept[: len(gone)]
    assert 3 <= len(gone) <= 5, "a day of four files is too much now"


def test_bytes_on_disk_are_bounded_and_the_newest_stay(folder: Path) -> None:
    kept, bound = kept_in(folder, max_bytes=100_000, full_seconds=DAY), 100_000 + 100_000 // store.CHUNK_SHARE
    most = 0
    for second in range(0, 12_000, 6):
        feed(kept, [moment(second, at=AT + second * 1.000001)])
        most = max(most, sum(path.stat().st_size for path in (folder / "recorder").iterdir()))
    assert 80_000 < most <= bound
    assert monotonic_of(files(folder, "full"))[-1] == 11_994
    assert kept.state.bytes <= bound


def test_an_agent_that_restarts_again_and_again_leaves_a_bounded_number_of_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "MOST_FILES", 3)
    for second in range(0, 600, 60):
        kept = kept_in(folder)
        feed(kept, [moment(second)])
        kept.close(b"")
    assert len(files(folder, "full")) <= 3 + 1
    assert monotonic_of(files(folder, "full"))[-1] == 540


def test_an_agent_that_was_killed_leaves_what_can_be_read_and_the_tear_is_counted(folder: Path) -> None:
    first = kept_in(folder)
    feed(first, leaking(5, 1000))
    first._unlock()  # killed: nothing is closed
    path = files(folder, "full")[0]
    with path.open("ab") as file:
        file.write(b"D\x40\x00")
    second = kept_in(folder)
    feed(second, [moment(9)])
    assert second.state.torn_total == 1
    assert monotonic_of(files(folder, "full")) == [0, 1, 2, 3, 4, 9]
    assert path.read_bytes()[-3:] != b"D\x40\x00"
    second.close(b"")
    third = kept_in(folder)
    feed(third, [moment(20)])
    assert third.state.torn_total == 0


def test_a_file_without_a_header_is_thrown_away(folder: Path) -> None:
    (folder / "recorder").mkdir(parents=True)
    (folder / "recorder" / "full-00000007.kvtide").write_bytes(b"KV")
    kept = kept_in(folder)
    feed(kept, [moment(0)])
    assert kept.state.torn_total == 1
    assert [path.name for path in files(folder, "full")] == ["full-00000001.kvtide"]


def test_two_agents_do_not_share_a_folder(folder: Path) -> None:
    first, second = kept_in(folder), kept_in(folder)
    feed(first, [moment(0)])
    feed(second, [moment(0)])
    assert (second.state.recording, second.state.reason) == (False, f"{folder}: another agent records there")
    first.close(b"")
    feed(second, [moment(store.RETRY_SECONDS - 1)])
    assert not second.state.recording, "it is not tried at each state"
    feed(second, [moment(store.RETRY_SECONDS)])
    assert second.state.recording
    assert second.state.dropped_total == 2


def test_a_folder_that_can_not_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    kept = kept_in(tmp_path / "file" / "kept")
    feed(kept, leaking(100, 1000))
    assert not kept.state.recording
    assert kept.state.reason == f"{tmp_path / 'file' / 'kept'}: Not a directory"
    assert kept.state.dropped_total == 100
    assert [record.message for record in caplog.records] == [
        f"nothing is recorded: {tmp_path / 'file' / 'kept'}: Not a directory; the agent goes on"
    ]
    with pytest.raises(BundleError, match="nothing is recorded: "):
        kept.bundle(60.0, "asked")
    kept.close(b"")


def test_a_full_disk_costs_states_and_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="kvtide.recorder")
    kept, real, full = kept_in(folder), frames.write_all, False

    def write_all(file: object, data: bytes) -> int:
        if full:
            real(file, data[: len(data) // 2])  # type: ignore[arg-type]
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(file, data)  # type: ignore[arg-type]

    monkeypatch.setattr(frames, "write_all", write_all)
    feed(kept, [moment(0), moment(1)])
    full = True
    feed(kept, [moment(second) for second in range(2, 100)])
    assert kept.state.reason == f"{folder}: No space left on device"
    assert len(files(folder, "full")) == 1, "no empty files collect"
    full = False
    feed(kept, [moment(second) for second in range(100, 140)])
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert caplog.messages[1] == f"it is recorded again: {folder}"
    assert (kept.state.recording, kept.state.torn_total) == (True, 2)  # the end of the other series, too
    found = monotonic_of(files(folder, "full"))
    assert found[:2] == [0, 1]
    assert found[-1] == 139
    assert kept.state.states_total + kept.state.dropped_total == 140
