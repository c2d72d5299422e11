"""How many tenants have a row of their own, and what becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path

from engine_hooks.core import sessions, tenants
from engine_hooks.core.tenants import MAX_TENANTS
from engine_hooks.detail import OTHER
from tests.bed.scheduler import step
from tests.engine.tenants import Tenants, abort, make, rows, watch


def fill_places(watched: Tenants, *, finish: bool = True) -> None:
    for i in range(MAX_TENANTS):
        watched.scheduler.add_request(make(i, f"t{i}", f"s{i}", max_tokens=1 if finish else 500))
        step(watched.scheduler)


def test_those_beyond_the_bound_are_counted_in_other() -> None:
    watched = watch()
    fill_places(watched, finish=False)
    assert OTHER not in rows(watched)
    for i in range(MAX_TENANTS, MAX_TENANTS + 5):
        watched.scheduler.add_request(make(i, f"t{i}"))
    step(watched.scheduler)
    other = rows(watched)[OTHER]
    assert (other.running, other.requests_total) == (5, 5)
    assert other.held > 0


def test_a_tenant_that_was_long_away_makes_room_and_its_counts_stay_in_the_sum() -> None:
    watched = watch()
    fill_places(watched)
    watched.scheduler.add_request(make(900, "early"))
    assert "early" not in rows(watched), "nobody has been away for long enough"
    watched.now += tenants.FOLD_SECONDS
    watched.scheduler.add_request(make(901, "late"))
    seen = rows(watched)
    assert "late" in seen
    assert "t0" not in seen
    assert seen[OTHER].requests_total == 2
    assert seen[OTHER].ended_total == {"finished": 1}
    assert sum(row.requests_total for row in seen.values()) == MAX_TENANTS + 2


def test_a_session_outlives_the_row_of_its_tenant() -> None:
    """Its first request is counted in ``other``, its second under a row that is given up before the first one ends."""
    watched = watch()
    fill_places(watched)
    watched.scheduler.add_request(make(900, "acme", "talk", max_tokens=2000))
    watched.now += tenants.FOLD_SECONDS
    watched.scheduler.add_request(make(901, "acme", "talk", max_tokens=1))
    step(watched.scheduler)
    assert rows(watched)["acme"].sessions == 1
    for i in range(MAX_TENANTS):  # all others come back; acme is the only one that was away
        watched.scheduler.add_request(make(1000 + i, f"u{i}", max_tokens=2000))
    watched.now += tenants.FOLD_SECONDS
    watched.scheduler.add_request(make(1100, "late"))
    seen = rows(watched)
    assert "acme" not in seen
    assert (seen[OTHER].sessions, seen["late"].requests_total) == (1, 1)
    abort(watched, 900)
    watched.now += sessions.OVER_SECONDS
    assert rows(watched)[OTHER].sessions == 0


def test_a_tenant_of_the_map_has_its_place_and_its_quota_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "tenants.json"
    file.write_text(json.dumps({"gold": {"quota_ratio": 0.25}, "silver": {"quota_blocks": 7}}))
    watched = watch(env={"KVTIDE_TENANT_MAP": str(file)})
    fill_places(watched)
    for i, name in enumerate(["stranger", "gold", "silver"]):
        watched.scheduler.add_request(make(900 + i, name))
    seen = rows(watched)
    assert "stranger" not in seen
    assert {name: row.quota_blocks for name, row in seen.items() if row.quota_blocks is not None} == {
        "gold": 1999 // 4,
        "silver": 7,
    }


def test_other_and_none_are_nobodys_names() -> None:
    watched = watch()
    watched.scheduler.add_request(make(0))
    watched.scheduler.add_request(make(1, OTHER))
    assert {name: row.requests_total for name, row in rows(watched).items()} == {"none": 1, OTHER: 1}
