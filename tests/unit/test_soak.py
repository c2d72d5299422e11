"""The soak's verdict can fail: what leaks is told, what only moves or fills up to a bound is not."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.bed.hook_memory import CEILING_MIB
from tests.bed.soak import BESIDE_KIB, RESTARTS_KIB, Seen, beside, hooks_kib, judged
from tests.bed.trend import trend

LOOKS, LOOK_SECONDS = 450, 2.0
HOUR = 3600.0


def seen(**per_hour: float) -> Seen:
    """A quarter of an hour in which each series has noise of its own, and grows by so much an hour."""
    draw = random.Random(1)
    levels = {
        "agent_mib": (67.0, 0.3),
        "agent_files": (28.0, 3.0),
        "agent_threads": (6.0, 0.0),
        "core_mib": (500.0, 2.0),
        "twin_mib": (480.0, 2.0),
        "apart_mib": (18.0, 2.0),
        "core_files": (51.0, 0.0),
        "hooks_kib": (1500.0, 20.0),
        "beside_kib": (500.0, 20.0),
        "series": (2300.0, 60.0),
    }
    assert set(levels) == set(Seen.__slots__)
    found = Seen()
    for name, (level, noise) in levels.items():
        for look in range(LOOKS):
            at = look * LOOK_SECONDS
            value = level + per_hour.get(name, 0.0) * at / HOUR + draw.uniform(-noise, noise)
            getattr(found, name).append((at, value))
    return found


def test_what_only_moves_has_not_grown() -> None:
    assert judged(seen(), 0.0) == []


def test_what_wanders_for_minutes_has_not_grown() -> None:
    """As the agent's memory does: it is nearly at what it was at a minute ago. One in forty may be taken for more."""
    runs, told = 400, 0
    for run in range(runs):
        draw, value, found = random.Random(run), 0.0, Seen()
        for look in range(2 * LOOKS):
            value = 0.98 * value + draw.gauss(0.0, 0.02)
            found.agent_mib.append((look * LOOK_SECONDS, 67.0 + value))
        told += trend(found.agent_mib).grows
    assert told <= 0.06 * runs


def test_what_grows_in_any_engine_is_not_ours() -> None:
    assert judged(seen(core_mib=80.0, twin_mib=80.0), 0.0) == []


def test_books_that_fill_are_no_leak_below_their_ceiling() -> None:
    assert judged(seen(hooks_kib=9000.0), 0.0) == []


@pytest.mark.parametrize(
    ("leak", "told"),
    [
        ({"agent_mib": 1.0}, "the agent's memory"),
        ({"agent_files": 8.0}, "agent_files"),
        ({"agent_threads": 8.0}, "agent_threads"),
        ({"core_files": 8.0}, "core_files"),
        ({"hooks_kib": 5 * 1024 * CEILING_MIB}, "the hooks' memory"),
        ({"beside_kib": 5 * BESIDE_KIB}, "the hooks' memory beside their books"),
        ({"apart_mib": 32.0}, "the core's memory beside its twin's"),
        ({"series": 800.0}, "the series"),
    ],
)
def test_a_planted_leak_is_told(leak: dict[str, float], told: str) -> None:
    (line,) = judged(seen(**leak), 0.0)
    assert line.startswith(f"{told}:")


def test_what_stays_of_killed_agents_is_told() -> None:
    (line,) = judged(seen(), 1.1 * RESTARTS_KIB)
    assert "over restarts of the agent" in line


def test_what_no_process_has_told_is_no_zero(tmp_path: Path) -> None:
    assert hooks_kib(tmp_path) is None
    with pytest.raises(ValueError, match="no process of the engine"):
        beside(tmp_path)
    for pid, books in ((1, 1024), (2, 0)):
        (tmp_path / f"{pid}.json").write_text(json.dumps({"bytes": 4096, "books": books}))
    assert hooks_kib(tmp_path) == (8.0, 7.0)
    assert beside(tmp_path) == 7.0
