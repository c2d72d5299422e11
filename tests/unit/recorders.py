"""A recorder's store over a folder, and what is found there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.bundle.format import Header, Usuals, read
from agent.bundle.records import encoded
from agent.judge import Judge
from agent.recorder.store import Learned, Store
from agent.signals.baseline import Baselines, Usual
from agent.state import AgentState, Judgement
from tests.unit.recordings import MONOTONIC

HEADER = Header(why="flight recorder", host="node", policy="{}")
CALM = Judgement(at=0.0)
USUALS = Usuals(baselines=Baselines(engines={"m": {"context": Usual(value=800.0, count=40)}}))
LEARNED = Learned(encoded(USUALS)[1], encoded(USUALS)[1])


def kept_in(folder: Path, **changes: float) -> Store:
    """A store with usual limits."""
    limits = {"full_seconds": 1800.0, "coarse_seconds": 86400.0, "max_bytes": 64 << 20}
    return Store(folder, HEADER, **limits | changes)  # type: ignore[arg-type]


def feed(store: Store, states: Iterable[AgentState], judge: Judge | None = None) -> None:
    """Let it keep ``states``, judged where there is a judge."""
    for state in states:
        store.take(state, judge.look(state) if judge else CALM, None)


def files(folder: Path, series: str) -> list[Path]:
    """The chunks of a series, oldest first."""
    return sorted((folder / "recorder").glob(f"{series}-*.kvtide"))


def bundles_in(folder: Path) -> list[Path]:
    """The bundles of incidents."""
    return sorted((folder / "bundles").iterdir())


def monotonic_of(paths: list[Path]) -> list[float]:
    """The times of the states in them, in seconds since the begin."""
    return [state.monotonic - MONOTONIC for path in paths for state in read(path).states()]
