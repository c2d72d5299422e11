"""A stall is work and no token, whatever the pool says; a pause is none."""

from __future__ import annotations

from typing import Any

import pytest

from agent.verdicts.base import Facts, Finding
from agent.verdicts.kv_stall import KvStall
from engine_hooks.detail import WaitingRow
from tests.unit.builders import make_pool
from tests.unit.details import make_detail, make_waiting
from tests.unit.facts import facts, phases, signals
from tests.unit.timeline import page, state, times


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


@pytest.mark.parametrize(
    ("by", "running", "seconds", "tier"),
    [
        ("grammar", 0, 12.0, "warn"),
        ("remote_kv", 0, 59.0, "warn"),
        ("remote_kv", 0, 60.0, "page"),
        ("remote_kv", 1, 12.0, "page"),
        ("memory", 0, 12.0, "page"),
    ],
)
def test_one_request_that_waits_for_something_slow_gets_nobody_up_for_a_minute(
    by: str, running: int, seconds: float, tier: str
) -> None:
    row = make_waiting(reasons={by: 1}, stalled_seconds=seconds, stalled_by=by)
    finding = KvStall().judge(facts(read={"running": running, "waiting": 1}, detail=make_detail(waiting=row)))
    assert finding is not None
    assert finding.tier == tier


# -- what the pool says, and engines that do not say why ------------------------------------------------------

PAGE = {"hooked": False, "running": 0, "waiting": 6}


def on_a_page(held: int, **changes: Any) -> Finding | None:
    read = PAGE | {"held": held} | changes.pop("read", {})
    return KvStall().judge(facts(pool=None, read=read, **{"still_seconds": 45.0} | changes))


@pytest.mark.parametrize(
    "quiet",
    [
        {"still_seconds": 29.0},
        {"still_seconds": None},
        {"still_seconds": 600.0, "read": {"waiting": 0}},  # nothing to do
    ],
)
def test_on_a_page_it_is_quiet(quiet: dict[str, Any]) -> None:
    assert on_a_page(500, **quiet) is None


@pytest.mark.parametrize(
    ("held", "sentence", "remedy"),
    [
        (0, " The KV pool is empty.", "Memory is not what it waits for: evicting or preempting does nothing."),
        (500, "", ""),
        (970, " Nothing runs, and 97% of the KV pool is held all the same.", "only a restart frees them"),
    ],
)
def test_a_stall_is_one_whatever_the_pool_says(held: int, sentence: str, remedy: str) -> None:
    finding = on_a_page(held)
    assert finding is not None
    assert finding.tier == "page"
    assert finding.sentence == f"No token for 45 s, with none running and 6 waiting.{sentence}"
    assert remedy in finding.remedy
    assert "Unless somebody paused it" in finding.remedy
    row = make_waiting(reasons={"skipped": 3}, stalled_seconds=12.0, stalled_by="skipped")
    finding = KvStall().judge(facts(read={"held": held, "running": 0}, detail=make_detail(waiting=row)))
    assert finding is not None
    assert finding.sentence.endswith(f"a reason that let others pass.{sentence}")


def test_a_page_that_does_not_say_what_runs_is_not_taken_to_say_that_nothing_does() -> None:
    finding = on_a_page(970, read={"running": None})
    assert finding is not None
    assert finding.sentence == "No token for 45 s, with 6 waiting."
    assert "restart frees" not in finding.remedy


def test_an_empty_pool_that_has_no_room() -> None:
    """kv-27: a request of up to 262,144 tokens before a pool of 76,640."""
    row = make_waiting(reasons={"memory": 1}, stalled_seconds=12.0, stalled_by="memory")
    read = {"held": 0, "running": 0, "waiting": 1, "capacity": 4790}
    finding = KvStall().judge(facts(read=read, detail=make_detail(waiting=row)))
    assert finding is not None
    assert finding.sentence == (
        "No token has been scheduled for 12 s, with 0 requests running and 1 waiting for memory. The KV pool is empty. "
        "Either the first request needs more than all of it (76,640 tokens) and can never run, or the engine has "
        "miscounted."
    )
    assert "Abort the first request" in finding.remedy
    assert "Evicting frees nothing" in finding.remedy


def test_on_a_page_over_time() -> None:
    def said(t: float) -> Any:
        return signals(engine="s", hooked=False, still_seconds=t - 10 if 10 <= t < 100 else 0.0)

    def there(t: float) -> Any:
        return state(t, pages=[page(usage_ratio=0.0, running=0, waiting=6)])

    assert phases("kv_stall", times(200), said, there=there) == [
        (40.0, "suspect"),
        (42.0, "confirmed"),
        (129.0, "resolved"),
        (189.0, "none"),
    ]


@pytest.mark.parametrize(
    ("orphaned", "by", "lost"),
    [(None, "memory", True), (900, "memory", True), (0, "memory", False), (900, "delayed_frees", False)],
)
def test_only_what_is_lost_needs_a_restart(orphaned: int | None, by: str, lost: bool) -> None:
    row = make_waiting(reasons={by: 3}, stalled_seconds=12.0, stalled_by=by)
    read = {"held": 970, "running": 0, "waiting": 3, "orphaned": orphaned}
    finding = KvStall().judge(facts(read=read, detail=make_detail(waiting=row)))
    assert finding is not None
    assert ("only a restart frees them" in finding.remedy) == lost
