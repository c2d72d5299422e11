"""A bundle is read into memory as far as there is room, judged as it was live, and can be looked at anywhere."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from agent.bundle.errors import BundleError
from agent.top.history import Who
from agent.top.player import FASTEST, SLOWEST, Player
from agent.top.recording import Recording
from tests.unit.recordings import leaking, moment, sound_engine, written

WHO = Who("m", hooked=True)


def loaded(path: Path, **options: int) -> Recording:
    recording = Recording(path, **options)
    recording.load()
    assert not recording.loading
    return recording


def test_any_moment_is_there_with_its_judgement_and_what_was_before(tmp_path: Path) -> None:
    recording = loaded(written(tmp_path / "a.kvtide", leaking(90, since=20)))
    assert (len(recording), recording.length, recording.problem) == (90, 89.0, "")
    for second in (89.0, 10.0, 45.5, 0.0, -5.0, 1e9):
        found = recording.at(second)
        assert found is not None
        state, history = found
        place = int(min(89.0, max(0.0, second)))
        assert state.monotonic == 50_000.0 + place
        assert len(history.of(WHO)) == place + 1
        assert state.judgement is not None
        for verdicts in (state.judgement.verdicts, state.engines[0].verdicts):
            leaks = [each.phase for each in verdicts if each.kind == "kv_orphan"]
            assert (leaks == ["confirmed"]) == (place >= 40)


def test_what_does_not_fit_is_thinned_and_stays_in_order(tmp_path: Path) -> None:
    path = written(tmp_path / "a.kvtide", leaking(200, since=500))
    whole = loaded(path)
    small = loaded(path, most_bytes=whole._bytes // 5)
    assert small.thinned >= 8
    assert 200 // (2 * small.thinned) <= len(small) <= 200 // small.thinned + 1
    assert small._bytes <= whole._bytes // 5
    assert small._times == sorted(small._times)
    assert {later - earlier for earlier, later in zip(small._times, small._times[1:], strict=False)} == {small.thinned}
    assert small.length >= 199 - 2 * small.thinned


def test_an_agent_that_was_restarted_goes_on_where_the_other_ended(tmp_path: Path) -> None:
    second = (moment(float(number), started_at=1_700_000_500.0, monotonic=3.0 + number) for number in range(10))
    recording = loaded(written(tmp_path / "a.kvtide", chain(leaking(10, since=99), second)))
    assert recording._times == [float(number) for number in range(20)]


def test_a_file_that_is_cut_shows_what_is_before_that(tmp_path: Path) -> None:
    path = written(tmp_path / "a.kvtide", leaking(300, since=20))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    recording = loaded(path)
    assert recording.problem.startswith("The file is not whole: ")
    assert Player(recording, "a").seen(0.0).played.remark == recording.problem  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", b"not a bundle", b"KVTIDE\x01\x00garbage"])
def test_what_is_no_bundle_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=str(path)):
        Recording(path)


def test_garbage_behind_a_header_is_told_and_no_crash(tmp_path: Path) -> None:
    path = written(tmp_path / "a.kvtide", leaking(50, since=20))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40] = b"\xff" * 40
    path.write_bytes(bytes(data))
    assert loaded(path).problem


def test_a_bundle_without_a_state(tmp_path: Path) -> None:
    player = Player(loaded(written(tmp_path / "a.kvtide", iter(()))), "a")
    seen = player.seen(0.0)
    assert seen.state is None
    assert seen.played is not None
    assert seen.played.remark == "There is no state in it: nothing can be shown."


def test_it_plays_pauses_and_seeks(tmp_path: Path) -> None:
    states = (moment(float(number), sound_engine(running=number)) for number in range(60))
    player = Player(loaded(written(tmp_path / "a.kvtide", states)), "a", speed=2.0)

    def running(now: float) -> int | None:
        state = player.seen(now).state
        assert state is not None
        return state.engines[0].running

    assert [running(now) for now in (100.0, 101.0, 104.0)] == [0, 2, 8]
    player.pause()
    assert running(120.0) == 8
    player.seek(10.0)
    assert running(121.0) == 18
    player.pause()
    assert running(122.0) == 20
    player.seek(-1000.0)
    assert running(122.0) == 0
    player.seek(1000.0)
    assert running(130.0) == 59
    for factor, most in ((2.0, FASTEST), (0.5, SLOWEST)):
        for _ in range(40):
            player.faster(factor)
        assert player.speed == most
