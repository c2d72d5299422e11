"""A stall is work and no token, whatever the pool says; a pause is none."""

from __future__ import annotations

import pytest

from agent.verdicts.base import Facts, Finding
from agent.verdicts.kv_stall import KvStall
from engine_hooks.detail import WaitingRow
from tests.unit.builders import make_pool
from tests.unit.details import make_detail, make_waiting


def judge(row: WaitingRow | None) -> Finding | None:
    facts = Facts(pool=make_pool(orphaned=0), detail=make_detail(waiting=row), running=8, waiting=3)
    return KvStall().judge(facts)


@pytest.mark.parametrize(
    "row",
    [
        None,
        make_waiting(stalled_seconds=None, stalled_by=""),
        make_waiting(stalled_seconds=9.9),
        make_waiting(stalled_seconds=3600.0, stalled_by="paused"),
        make_waiting(stalled_seconds=None, stalled_by="paused"),
    ],
)
def test_it_is_quiet_while_tokens_flow_or_a_person_has_paused_it(row: WaitingRow | None) -> None:
    assert judge(row) is None


@pytest.mark.parametrize(
    ("reasons", "running", "quiet"),
    [({"paused": 3}, 0, True), ({"paused": 3}, 1, False), ({"paused": 2, "memory": 1}, 0, False)],
)
def test_new_requests_that_are_held_back_on_purpose_are_no_stall(
    reasons: dict[str, int], running: int, quiet: bool
) -> None:
    row = make_waiting(reasons=reasons, stalled_seconds=60.0, stalled_by="unknown")
    facts = Facts(pool=make_pool(), detail=make_detail(waiting=row), running=running, waiting=3)
    assert (KvStall().judge(facts) is None) == quiet


def test_it_is_quiet_where_nothing_is_told() -> None:
    assert KvStall().judge(Facts(pool=make_pool())) is None


@pytest.mark.parametrize(
    ("by", "sentence", "remedy"),
    [
        ("memory", "3 waiting for memory.", "leaked"),
        ("remote_kv", "3 waiting for KV from a peer.", "peer"),
        ("something_new", "3 waiting for something new.", "log"),
        ("", "3 waiting for a reason that is not known.", "log"),
    ],
)
def test_it_fires_after_ten_seconds_and_says_what_for(by: str, sentence: str, remedy: str) -> None:
    finding = judge(make_waiting(stalled_seconds=12.0, stalled_by=by))
    assert finding is not None
    assert finding.sentence == f"No token has been scheduled for 12 s, with 8 requests running and {sentence}"
    assert remedy in finding.remedy
    assert finding.evidence == {"stalled_seconds": 12.0, "idle_steps": 12, "running": 8, "waiting": 3}
