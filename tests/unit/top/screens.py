"""Screens of ``kvtide top`` as plain text, each compared with a file of ``golden/``.

``python -m tests.unit.top.screens`` writes the files anew: read the difference before it is committed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from agent.state import AgentState
from agent.tide import Tides
from agent.top.desk import Desk
from agent.top.frame import Row
from agent.top.past import history_of
from agent.top.seen import Played, Seen, Where
from tests.unit.top import nodes

GOLDEN = Path(__file__).parent / "golden"
LOW, HIGH = (80, 24), (200, 60)


class Shot(NamedTuple):
    state: Callable[[], AgentState | None]
    view: str
    size: tuple[int, int] = LOW
    keys: tuple[str, ...] = ()
    seen: Callable[[AgentState | None], Seen] | None = None


def _stale(state: AgentState | None) -> Seen:
    return Seen(nodes.SOURCE, state, age_seconds=34.2, problem="connection refused", problem_since=1_700_000_970.0)


def _never(state: AgentState | None) -> Seen:
    return Seen(nodes.SOURCE, problem="no agent answers", problem_since=1_700_000_970.0)


def _played(state: AgentState | None) -> Seen:
    return Seen("night.kvtide", state, played=Played(754.0, 3725.0, 8.0, paused=True, loading=True))


def _asking(state: AgentState | None) -> Seen:
    return Seen(nodes.SOURCE)


def _remembered(state: AgentState | None) -> Seen:
    assert state is not None
    tides = Tides()
    for each in nodes.rising(state, 900):
        assert each.judgement is not None
        tides.take(each, each.judgement)
    return replace(nodes.seen_of(state), history=history_of(tides.all(), state))


SHOTS: dict[str, Shot] = {
    **{
        f"{kind}-{view}-{width}x{height}": Shot(state, view, (width, height))
        for kind, state in (("small", nodes.small), ("full", nodes.full), ("none", nodes.nothing))
        for view in ("node", "engine", "tenants", "blocks", "verdicts", "actions")
        for width, height in ((LOW,) if kind == "none" else (LOW, HIGH))
    },
    "help": Shot(nodes.small, "node", LOW, ("question_mark",)),
    "silent-engine": Shot(nodes.small, "engine", LOW, ("right_square_bracket",)),
    "without-hooks": Shot(nodes.small, "engine", LOW, ("left_square_bracket",)),
    "action-explained": Shot(nodes.small, "actions", LOW, ("enter",)),
    "stale": Shot(nodes.small, "node", LOW, (), _stale),
    "never-answered": Shot(lambda: None, "node", LOW, (), _never),
    "asking": Shot(lambda: None, "node", LOW, (), _asking),
    "replay": Shot(nodes.small, "engine", LOW, (), _played),
    "remembered": Shot(nodes.small, "engine", LOW, (), _remembered),
    "too-small": Shot(nodes.small, "node", (60, 12)),
}


def plain_of(rows: Sequence[Row]) -> str:
    return "".join("".join(text for text, _ in row.line).rstrip() + "\n" for row in rows)


def taken(shot: Shot) -> str:
    """The screen after its keys, as text."""
    state = shot.state()
    if shot.seen is not None:
        seen = shot.seen(state)
    else:
        assert state is not None
        seen = nodes.seen_of(state, *(nodes.rising(state) if state.engines else ()))
    desk = Desk(Where(view=shot.view))
    for key in shot.keys:
        desk.rows(seen, shot.size)
        desk.press(key)
    return plain_of(desk.rows(seen, shot.size))


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.txt"):
        old.unlink()
    for name, shot in SHOTS.items():
        (GOLDEN / f"{name}.txt").write_text(taken(shot))


if __name__ == "__main__":
    main()
