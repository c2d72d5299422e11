"""The flight recorder: what is worth a bundle, when it is made, and what is in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.bundle.format import Bundle, Usuals, read
from agent.judge import Judge
from agent.recorder import assemble, incidents, shelf, store
from agent.recorder.incidents import AFTER_SECONDS, BETWEEN_SECONDS, Incidents
from agent.state import Judgement
from tests.unit.allocators import make_failure
from tests.unit.judgements import make_found
from tests.unit.node_builders import make_host
from tests.unit.recorders import CALM, LEARNED, USUALS, bundles_in, feed, files, kept_in, monotonic_of
from tests.unit.recordings import AT, MONOTONIC, leaking, moment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kept"


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


@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_a_clock_that_is_set_takes_nothing_out_of_a_bundle(folder: Path, jump: float) -> None:
    kept = kept_in(folder)
    feed(kept, (moment(second, at=AT + second + (jump if second >= 3900 else 0.0)) for second in range(4000)))
    found = monotonic_of([kept.bundle(600.0, "asked")])
    assert found == [*range(0, 3399, 60), *range(3399, 4000)]


def test_after_a_jump_back_the_newest_bundles_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "MOST_BUNDLES", 2)
    folder.mkdir()
    kept = shelf.Shelf(folder, 1 << 20)
    paths = []
    for number in range(4):  # each is written an hour earlier, as the wall clock has it
        paths.append(kept.place(AT - 3600 * number, "why"))
        paths[-1].write_bytes(b"a bundle")
        os.utime(paths[-1], (AT - 3600 * number,) * 2)
        kept.tidy()
    assert [path for path in paths if path.exists()] == paths[2:]


def test_what_is_older_than_the_day_before_is_not_read_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = kept_in(folder, coarse_seconds=1e9)
    feed(kept, [moment(1800.0 * number) for number in range(3 * 48)])
    chunks = files(folder, "coarse")
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
    judgement = Judgement(at=0.0, verdicts=(make_found(),))
    for second in range(700):
        kept.take(moment(second), judgement if second > 100 else CALM, LEARNED if second == 0 else None)
    records = list(read(kept.bundle(100.0, "asked")).records())
    assert isinstance(records[0], Usuals)
    assert records[0] == USUALS
    full = list(read(files(folder, "full")[-1]).records())
    assert isinstance(full[0], Usuals)
    assert full[1].standing  # type: ignore[union-attr]


def test_what_was_begun_and_never_fetched_is_removed(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, [moment(0)])
    path = kept.bundle(60.0, "asked")
    feed(kept, [moment(shelf.FETCH_SECONDS / 2, at=AT + 1e6)])  # the clock was set meanwhile
    assert path.exists(), "it may be on its way"
    feed(kept, [moment(2 * shelf.FETCH_SECONDS)])
    assert not path.exists()


def test_chunks_that_can_not_be_read_are_passed_over(folder: Path) -> None:
    kept = kept_in(folder)
    feed(kept, [moment(second) for second in range(700)])
    first, second, third = files(folder, "full")
    second.write_bytes(b"KVTIDE\x09\x00of another version")
    found = monotonic_of([kept.bundle(3600.0, "asked")])
    assert found == [*range(300), *range(600, 700)]
    assert (first.exists(), third.exists()) == (True, True)
