"""The flight recorder: what it keeps, for how long, in how many bytes, and what it does when the disk refuses."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.bundle import frames
from agent.bundle.format import Bundle, BundleError, Header, Usuals, read
from agent.bundle.records import encoded
from agent.judge import Judge
from agent.recorder import assemble, incidents, recorder, series, shelf, store
from agent.recorder.incidents import AFTER_SECONDS, BETWEEN_SECONDS, Incidents
from agent.recorder.kept import baselines_in
from agent.recorder.recorder import Recorder
from agent.recorder.store import Store
from agent.signals.baseline import Baselines, Usual
from agent.state import AgentState, Judgement
from tests.unit.allocators import make_failure
from tests.unit.judgements import make_found
from tests.unit.node_builders import make_host
from tests.unit.recordings import AT, MONOTONIC, leaking, moment

HEADER = Header(why="flight recorder", host="node", policy="{}")
MIB = 1 << 20
CALM = Judgement(at=0.0)
USUALS = Baselines(engines={"m": {"context": Usual(value=800.0, count=40)}})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def kept_in(folder: Path, **changes: float) -> Store:
    limits = {"full_seconds": 1800.0, "coarse_seconds": 86400.0, "max_bytes": 64 * MIB}
    return Store(folder, HEADER, **limits | changes)  # type: ignore[arg-type]


def feed(store: Store, states: Iterator[AgentState] | list[AgentState], judge: Judge | None = None) -> None:
    for state in states:
        store.take(state, judge.look(state) if judge else CALM, None)


def files(folder: Path, series: str) -> list[Path]:
    return sorted((folder / "recorder").glob(f"{series}-*.kvtide"))


def monotonic_of(paths: list[Path]) -> list[float]:
    return [state.monotonic - MONOTONIC for path in paths for state in read(path).states()]


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
        for path in (folder / "recorder").iterdir():
            if path.stat().st_mtime > AT + 1e6:  # written just now, by the clock of this machine
                os.utime(path, (AT + second, AT + second))
    full, coarse = monotonic_of(files(folder, "full")), monotonic_of(files(folder, "coarse"))
    last = 8 * 3600 - 30
    assert full[-1] == last
    assert 600 <= last - full[0] <= 600 + store.FULL_CHUNK_SECONDS + store.TIDY_SECONDS
    assert coarse[0] == 0, "the first chunk of six hours is not yet older than seven"
    assert coarse[-1] >= last - 60


def test_bytes_on_disk_are_bounded_and_the_newest_stay(folder: Path) -> None:
    kept, bound = kept_in(folder, max_bytes=100_000), 100_000 + 100_000 // store.CHUNK_SHARE
    most = 0
    for second in range(0, 12_000, 6):
        feed(kept, [moment(second, at=AT + second * 1.000001)])
        most = max(most, sum(path.stat().st_size for path in (folder / "recorder").iterdir()))
    assert 80_000 < most <= bound
    assert monotonic_of(files(folder, "full"))[-1] == 11_994
    assert kept.state.bytes <= bound


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


def test_a_full_disk_costs_states_and_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert (kept.state.recording, kept.state.torn_total) == (True, 2)  # the end of the other series, too
    found = monotonic_of(files(folder, "full"))
    assert found[:2] == [0, 1]
    assert found[-1] == 139
    assert kept.state.states_total + kept.state.dropped_total == 140


# -- incidents ------------------------------------------------------------------------------------------------------


def bundles_in(folder: Path) -> list[Path]:
    return sorted((folder / "bundles").iterdir())


def test_a_confirmed_verdict_gets_a_bundle_with_what_came_before_and_after(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, leaking(400, 200), Judge())
    (path,) = bundles_in(folder)
    assert path.name.endswith("-kv-orphan-m.kvtide")
    bundle = read(path)
    assert (bundle.header.why, bundle.header.host, bundle.header.policy) == ("kv_orphan m", "node", "{}")
    found = [state.monotonic - MONOTONIC for state in bundle.states()]
    said = {(change.verdict.kind, change.verdict.phase): change.monotonic - MONOTONIC for change in bundle.changes()}
    confirmed = said["kv_orphan", "confirmed"]
    assert found == [*range(round(confirmed + AFTER_SECONDS) + 1)]
    assert kept.state.bundles_total == 1
    assert kept.state.last_bundle == str(path)


@pytest.mark.parametrize(
    ("verdict", "asks"),
    [({}, True), ({"tier": "warn"}, True), ({"tier": "note"}, False), ({"phase": "suspect"}, False)],
)
def test_what_is_worth_a_bundle(folder: Path, verdict: dict[str, str], asks: bool) -> None:
    kept = kept_in(folder)
    judgement = Judgement(at=0.0, verdicts=(make_found(**verdict),))
    for second in range(100):
        kept.take(moment(second), judgement if second > 10 else CALM, None)
    assert len(bundles_in(folder)) == asks


@pytest.mark.parametrize(("later", "asks"), [("warn", True), ("page", True), ("note", False)])
def test_a_note_that_becomes_more_is_worth_one(folder: Path, later: str, asks: bool) -> None:
    kept = kept_in(folder)
    for second in range(200):
        verdict = make_found(tier=later if second > 100 else "note")
        kept.take(moment(second), Judgement(at=0.0, verdicts=(verdict,)), None)
    assert len(bundles_in(folder)) == asks


def test_an_allocation_that_fails_and_a_process_that_is_killed_get_one(folder: Path) -> None:
    kept = kept_in(folder)
    old = make_failure(engine="old")
    feed(kept, [moment(0, failures=(old,), host=make_host())])
    feed(kept, [moment(second, failures=(old,), host=make_host()) for second in range(1, 80)])
    assert bundles_in(folder) == [], "what was there before was not seen to happen"
    new = make_failure(engine="m", pid=77)
    feed(kept, [moment(second, failures=(new, old), host=make_host()) for second in range(80, 100)])
    killed = make_host(kills_total={"m": 2, "n": 0})
    feed(kept, [moment(second, failures=(new, old), host=killed) for second in range(100, 160)])
    (path,) = bundles_in(folder)
    assert read(path).header.why == "out of memory: m; killed by the kernel for want of memory"


def test_bundles_are_not_made_too_often_nor_too_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "MOST_BUNDLES", 3)
    kept = kept_in(folder)
    judgement = Judgement(at=0.0, verdicts=(make_found(),))
    for second in range(3600):  # it comes and goes each half minute
        kept.take(moment(second), judgement if second % 30 >= 15 else CALM, None)
    assert kept.state.bundles_total == 1 + int((3599 - 15 - AFTER_SECONDS) // BETWEEN_SECONDS)
    assert len(bundles_in(folder)) == 3
    assert kept.state.bundles == 3


def test_what_comes_soon_after_a_bundle_is_in_the_next_one() -> None:
    gathered = Incidents()
    gathered.happened(("pressure",), 0.0)
    assert gathered.due(AFTER_SECONDS) == "pressure"
    gathered.happened(("out of memory",), AFTER_SECONDS + 30)
    gathered.happened(("killed",), AFTER_SECONDS + 200)
    assert gathered.due(AFTER_SECONDS + BETWEEN_SECONDS - 1) == ""
    assert gathered.due(AFTER_SECONDS + BETWEEN_SECONDS) == "out of memory; killed"
    gathered.happened(("later",), 5000.0)
    assert gathered.due(5000.0 + AFTER_SECONDS) == "later"


def test_reasons_are_gathered_until_the_bundle_is_made() -> None:
    gathered = Incidents()
    gathered.happened((), 0.0)
    assert gathered.due(1000.0) == ""
    gathered.happened(("a", "b"), 1000.0)
    gathered.happened(("b", *(f"c{number}" for number in range(20))), 1030.0)
    assert gathered.due(1000.0 + AFTER_SECONDS - 0.5) == ""
    assert gathered.due(1000.0 + AFTER_SECONDS) == "a; b; c0; c1; c2; c3; c4; c5"
    assert incidents.MOST_REASONS == 8
    assert gathered.due(5000.0) == ""


def test_a_bundle_that_is_due_when_the_agent_ends_is_made_then(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, leaking(30, 10), Judge())
    assert bundles_in(folder) == []
    kept.close(b"usual")
    assert len(bundles_in(folder)) == 1
    assert (folder / store.BASELINES).read_bytes() == b"usual"


def test_the_day_before_is_in_a_bundle_once_a_minute(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, [moment(second) for second in range(0, 4000)])
    path = kept.bundle(600.0, "asked")
    found = [state.monotonic - MONOTONIC for state in read(path).states()]
    every = [each for each in found if each >= 3999 - 600]
    assert every == [*range(3399, 4000)]
    before = found[: -len(every)]
    assert before[:3] == [0, 60, 120]
    assert found == sorted(set(found))
    assert len(before) == 57


def test_what_is_older_than_the_day_before_is_not_read_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_in(folder, coarse_seconds=1e9)
    feed(kept, [moment(1800.0 * number) for number in range(3 * 48)])
    chunks = files(folder, "coarse")
    for number, path in enumerate(chunks[:-1], start=1):  # as if written then
        os.utime(path, (AT + number * store.COARSE_CHUNK_SECONDS,) * 2)
    asked: list[Path] = []

    def noted(path: Path) -> Bundle:
        asked.append(path)
        return read(path)

    monkeypatch.setattr(assemble, "read", noted)
    made = kept.bundle(60.0, "test")
    (oldest, *_) = (state.monotonic - MONOTONIC for state in read(made).states())
    assert oldest == 2 * 86400 - 1800
    assert {path for path in asked if path in chunks} == set(chunks[-5:])


def test_what_stood_and_what_was_usual_comes_first(folder: Path) -> None:
    kept = kept_in(folder)
    usuals = encoded(Usuals(baselines=USUALS))[1]
    judgement = Judgement(at=0.0, verdicts=(make_found(),))
    for second in range(700):
        kept.take(moment(second), judgement if second > 100 else CALM, usuals if second == 0 else None)
    records = list(read(kept.bundle(100.0, "asked")).records())
    assert isinstance(records[0], Usuals)
    assert records[0].baselines == USUALS
    full = list(read(files(folder, "full")[-1]).records())
    assert isinstance(full[0], Usuals)
    assert full[1].standing  # type: ignore[union-attr]


def test_what_was_begun_and_never_fetched_is_removed(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, [moment(0)])
    path = kept.bundle(60.0, "asked")
    os.utime(path, (AT, AT))
    feed(kept, [moment(100)])
    assert path.exists(), "it may be on its way"
    feed(kept, [moment(shelf.FETCH_SECONDS + 200)])
    assert not path.exists()


# -- the thread -----------------------------------------------------------------------------------------------------


def run(folder: Path, during: Callable[[Recorder], None]) -> Recorder:
    made = Recorder(kept_in(folder), lambda: USUALS)
    made.start()
    during(made)
    made.close()
    return made


def test_states_go_through_the_thread_and_baselines_with_them(folder: Path) -> None:
    made = run(folder, lambda made: [made.take(state, CALM) for state in leaking(10, 100)] and None)
    assert made.state().states_total == 10
    assert baselines_in(folder) == USUALS
    assert monotonic_of(files(folder, "full")) == list(range(10))


def test_who_asks_gets_a_bundle(folder: Path) -> None:
    found: list[int] = []

    def during(made: Recorder) -> None:
        for state in leaking(10, 100):
            made.take(state, CALM)
        path = made.ask(60.0).result(20.0)
        found.append(len(list(read(path).states())))

    run(folder, during)
    assert found == [10]


def test_a_disk_that_hangs_costs_states_and_the_agent_does_not_wait(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "CLOSE_SECONDS", 0.01)
    hang, kept = threading.Event(), kept_in(folder)
    real = kept.take
    monkeypatch.setattr(kept, "take", lambda *each: (hang.wait(60.0), real(*each)))
    made = Recorder(kept, lambda: USUALS)
    made.start()
    for state in leaking(100, 1000):
        made.take(state, CALM)
    assert made.state().dropped_total in (100 - recorder.WAITING, 99 - recorder.WAITING)
    with pytest.raises(BundleError, match="the disk is too slow"):
        made.ask(60.0).result(1.0)
    made.close()
    hang.set()
    made._work.put(None)
    made._thread.join(20.0)


def test_a_fault_of_ours_ends_no_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_in(folder)
    monkeypatch.setattr(kept, "take", lambda *_: 1 / 0)
    made = Recorder(kept, lambda: USUALS)
    made.start()
    made.take(moment(0), CALM)
    made.take(moment(1), CALM)
    made.close()
    assert made.state().dropped_total == 2


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x91" * 50_000, bytes(5 << 20)])
def test_baselines_that_can_not_be_used_are_learned_anew(folder: Path, content: bytes) -> None:
    assert baselines_in(folder) is None
    folder.mkdir()
    (folder / store.BASELINES).write_bytes(content)
    assert baselines_in(folder) is None


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


def test_chunks_that_can_not_be_read_are_passed_over(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, [moment(second) for second in range(700)])
    first, second, third = files(folder, "full")
    second.write_bytes(b"KVTIDE\x09\x00of another version")
    found = monotonic_of([kept.bundle(3600.0, "asked")])
    assert found == [*range(300), *range(600, 700)]
    assert (first.exists(), third.exists()) == (True, True)
