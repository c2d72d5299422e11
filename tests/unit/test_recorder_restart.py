"""An agent that is restarted goes on with what it had learned, and a replay of its recording does so, too."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agent.bundle.format import Usuals, read
from agent.config import RecorderConfig
from agent.judging import LiveJudge
from agent.policy.types import DEFAULT
from agent.recorder import assemble, kept, store
from agent.recorder.kept import usuals_in
from agent.recorder.recorder import Recorder
from agent.recorder.wiring import recorder_of
from agent.replay.bundles import replay_bundle
from agent.state import AgentState
from tests.unit.node_builders import MIB, make_host, make_process
from tests.unit.recorders import files
from tests.unit.recordings import AT, moment

HOUR = 3600
MINUTES = 5 * 60


@pytest.fixture(autouse=True)
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the place of the kernel's."""
    path = tmp_path / "boot_id"
    path.write_text("first\n")
    monkeypatch.setattr(kept, "BOOT", path)
    return path


def growing(second: float, started_at: float) -> AgentState:
    """A process takes 200 MiB an hour, too slowly for all but the slow estimate."""
    size = int((4000 + 200 * second / HOUR) * MIB)
    host = make_host(
        processes=(make_process(resident_bytes=size, started_at=AT - 9e4),), cgroups=(), killed=(), dead=()
    )
    return moment(second, host=host, started_at=started_at)


def live(folder: Path, begin: int, minutes: int) -> tuple[list[set[str]], Recorder]:
    """Run an agent's judge and recorder for so many states, a minute apart; return what was confirmed at each."""
    judge = LiveJudge(DEFAULT, usuals_in(folder))
    recorder = recorder_of(RecorderConfig(directory=folder), judge)
    assert recorder is not None
    recorder.start()
    said = []
    for second in range(begin, begin + 60 * minutes, 60):
        state = growing(second, AT + begin)
        judgement = judge.look(state)
        recorder.take(state, judgement)
        kept_up = threading.Event()
        recorder._work.put(kept_up.set)
        assert kept_up.wait(20.0)
        said.append({each.kind for each in judgement.verdicts if each.phase == "confirmed"})
    assert not judge.errors
    return said, recorder


def test_a_slow_leak_is_told_again_soon_after_a_restart_and_in_a_replay(
    tmp_path: Path, boot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "kept"
    before, recorder = live(folder, 0, MINUTES)
    assert "host_growth" in before[-1]
    assert "host_growth" not in before[100]
    recorder.close()

    after, recorder = live(folder, 60 * MINUTES, 20)
    assert "host_growth" in after[-1]
    monkeypatch.setattr(assemble, "BEFORE_SECONDS", 0.0)  # only what the second agent saw
    replayed = replay_bundle(recorder.ask(19 * 60.0).result(20.0))
    recorder.close()
    assert (replayed.agents, replayed.states) == (1, 20)
    assert "host_growth" in {each.kind for each in replayed.verdicts}

    boot.write_text("second\n")
    other, recorder = live(folder, 60 * MINUTES + 1260, 20)
    recorder.close()
    assert not any("host_growth" in each for each in other), "another boot has other processes"


def test_what_is_large_is_where_an_agent_begins_and_where_a_bundle_may(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    _, recorder = live(folder, 0, 7 * 60)
    recorder.close()
    heads = {name: [next(iter(read(path).records())) for path in files(folder, name)] for name in ("full", "coarse")}
    known = {
        name: [isinstance(each, Usuals) and each.tracks is not None for each in rows] for name, rows in heads.items()
    }
    assert known["coarse"] == [True] * 2
    assert known["full"] == [False] * len(known["full"])  # the first one is thrown away by now
    first = kept_first(folder)
    assert first.tracks is not None
    assert first.tracks.boot == "first"


def kept_first(folder: Path) -> Usuals:
    found = usuals_in(folder)
    assert found is not None
    assert (folder / store.BASELINES).stat().st_size < 100_000
    return found
