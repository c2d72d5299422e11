"""What the verdict on a leak says: it fires on any orphaned block and on nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from agent.signals.types import Slow
from agent.verdicts import DETECTORS
from agent.verdicts.base import Facts, Finding
from agent.verdicts.kv_orphan import KvOrphan
from tests.unit.builders import MIB, make_engine, make_pool
from tests.unit.details import make_detail, make_leak, make_pool_row
from tests.unit.facts import facts, phases, signals, slow
from tests.unit.timeline import page, pool, state, times


def test_every_detector_is_registered_once() -> None:
    kinds = [detector.kind for detector in DETECTORS]
    assert len(set(kinds)) == len(kinds)
    assert "kv_orphan" in kinds
    assert KvOrphan.confirm_seconds == 3.0


def test_an_engine_without_a_pool_has_no_finding() -> None:
    assert KvOrphan().judge(Facts(pool=None, detail=make_detail(pools=()))) is None


@pytest.mark.parametrize("orphaned", [0, None])
def test_a_sound_pool_beside_the_main_one_has_no_finding(orphaned: int | None) -> None:
    detail = make_detail(pools=(make_pool_row(orphaned=orphaned),))
    assert KvOrphan().judge(Facts(pool=make_pool(orphaned=0), detail=detail)) is None


def test_a_leak_in_a_pool_beside_the_main_one_is_one() -> None:
    detail = make_detail(leaks=(), pools=(make_pool_row(orphaned=1), make_pool_row(pool="disk", orphaned=3)))
    finding = KvOrphan().judge(Facts(pool=make_pool(orphaned=0), detail=detail))
    assert finding is not None
    assert finding.sentence == (
        "1 block is held by nothing in the pool cpu: leaked. 3 blocks are held by nothing in the pool disk: leaked."
    )
    assert finding.evidence == {"orphaned_blocks_beside": 4}
    finding = KvOrphan().judge(Facts(pool=make_pool(orphaned=4), detail=detail))
    assert finding is not None
    assert finding.sentence.startswith("4 KV blocks are held by no request")
    assert "1 block is held by nothing in the pool cpu" in finding.sentence


@pytest.mark.parametrize("orphaned", [0, None])
@pytest.mark.parametrize("held", [0, 300, 1000])
def test_no_leak_no_finding_however_full(orphaned: int | None, held: int) -> None:
    assert KvOrphan().judge(Facts(pool=make_pool(orphaned=orphaned, held=held))) is None


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"orphaned": 1, "block_bytes": None}, "1 KV block is held by no request (0.1% of the pool): "),
        ({"orphaned": 1}, "1 KV block is held by no request (1.0 MiB, 0.1% of the pool): "),
        ({"orphaned": 4}, "4 KV blocks are held by no request (4.0 MiB, 0.4% of the pool): "),
        ({"orphaned": 300, "block_bytes": None}, "300 KV blocks are held by no request (30.0% of the pool): "),
        (
            {"orphaned": 1, "capacity": 400_000},
            "1 KV block is held by no request (1.0 MiB, under 0.1% of the pool): ",
        ),
        (
            {"orphaned": 123_456, "capacity": 400_000},
            "123,456 KV blocks are held by no request (120.6 GiB, 30.9% of the pool): ",
        ),
    ],
)
def test_the_sentence(changes: dict[str, int | None], start: str) -> None:
    finding = KvOrphan().judge(Facts(pool=make_pool(**changes)))
    assert finding is not None
    assert finding.sentence.startswith(start)
    assert finding.sentence.endswith(".")
    assert "restart" in finding.remedy


def test_the_evidence_has_bytes_only_where_they_are_known() -> None:
    finding = KvOrphan().judge(Facts(pool=make_pool(orphaned=4)))
    assert finding is not None
    assert finding.evidence == {"orphaned_blocks": 4, "orphaned_ratio": 0.004, "orphaned_bytes": 4 * MIB}
    finding = KvOrphan().judge(Facts(pool=make_pool(orphaned=4, block_bytes=None)))
    assert finding is not None
    assert finding.evidence == {"orphaned_blocks": 4, "orphaned_ratio": 0.004}


LEAKED = "4 KV blocks are held by no request (4.0 MiB, 0.4% of the pool): leaked, and of no use to anyone."


@pytest.mark.parametrize(
    ("leaks", "who"),
    [
        (None, ""),
        ((), ""),
        ((make_leak(kind="over_freed"),), ""),
        (
            (make_leak(),),
            " Last held by tenant acme, request 3fa2b1c4d5e6, aborted at the front end 14 s ago.",
        ),
        (
            (make_leak(tenant="none", ending="finished", age_seconds=300.0),),
            " Last held by request 3fa2b1c4d5e6, finished 5 min ago.",
        ),
        (
            (make_leak(ending="unknown"),),
            " Last held by tenant acme, request 3fa2b1c4d5e6, its end was not seen, found 14 s ago.",
        ),
        (
            (make_leak(tenant="none", request="", ending="unknown"),),
            " Last held by no request that was seen; found 14 s ago.",
        ),
        (
            (make_leak(blocks=1), make_leak(blocks=3, request="b2", ending="odd_way")),
            " 3 blocks of them last held by tenant acme, request b2, odd way 14 s ago; 1 block by 1 other.",
        ),
        (
            (make_leak(blocks=2), make_leak(blocks=1), make_leak(blocks=1)),
            " 2 blocks of them last held by tenant acme, request 3fa2b1c4d5e6, aborted at the front end 14 s ago; "
            "2 blocks by 2 others.",
        ),
        ((make_leak(pool="cpu"),), ""),
    ],
)
def test_the_sentence_says_who_held_them(leaks: object, who: str) -> None:
    detail = make_detail(leaks=leaks, pools=(make_pool_row(pool="cpu", orphaned=0),))
    finding = KvOrphan().judge(Facts(pool=make_pool(orphaned=4), detail=detail))
    assert finding is not None
    assert finding.sentence == LEAKED + who


@pytest.mark.parametrize(
    ("orphaned", "held", "harm", "tier"),
    [
        (1, 990, False, "warn"),
        (1, 990, True, "warn"),  # too few to be why
        (10, 990, True, "page"),
        (10, 800, True, "warn"),
        (99, 990, False, "warn"),
        (100, 100, False, "page"),
    ],
)
def test_it_pages_where_much_is_leaked_or_the_pool_is_short(orphaned: int, held: int, harm: bool, tier: str) -> None:
    finding = KvOrphan().judge(facts(pool=pool(orphaned=orphaned, held=held, cached_idle=0), harm=harm))
    assert finding is not None
    assert finding.tier == tier


# -- inferred -----------------------------------------------------------------------------------------------


def inferred(**changes: Any) -> Finding | None:
    return KvOrphan().judge(facts(pool=None, hooked=False, read={"hooked": False}, **changes))


@pytest.mark.parametrize(
    "quiet",
    [
        {"idle_floor_ratio": 0.9, "idle_floor_seconds": 590.0},  # a lease may end it
        {"idle_floor_ratio": 0.0, "idle_floor_seconds": 9000.0},
        {"idle_floor_ratio": 0.001, "idle_floor_seconds": 9000.0},
        {"slow_unexplained": slow(leaks=False)},
        {"slow_unexplained": slow(leaks=False, staircase=3)},
        {"slow": slow()},  # requests account for it
    ],
)
def test_without_an_audit_it_is_quiet_where_blocks_may_yet_come_back(quiet: dict[str, Any]) -> None:
    assert inferred(**quiet) is None


@pytest.mark.parametrize(
    ("ratio", "share", "tier"), [(0.012, "1.2%", "warn"), (0.12, "12%", "warn"), (0.5, "50%", "page")]
)
def test_what_stays_at_rest_is_probably_leaked(ratio: float, share: str, tier: str) -> None:
    finding = inferred(idle_floor_ratio=ratio, idle_floor_seconds=720.0)
    assert finding is not None
    assert finding.tier == tier
    assert finding.sentence == (
        f"Nothing has run or waited for 12 min, and {share} of the KV pool is still held: probably leaked. This is "
        "inferred from how much stays held; hooks (kvtide installed beside the engine) would tell whose it is."
    )
    assert "only a restart brings them back" in finding.remedy
    assert finding.evidence == {"idle_held_ratio": ratio, "idle_seconds": 720.0}


def test_a_rise_over_hours_that_requests_do_not_account_for() -> None:
    finding = inferred(slow_unexplained=slow(), use_ratio=0.6)
    assert finding is not None
    assert finding.sentence.startswith(
        "Held blocks rise by 2.0% of the pool an hour, and requests do not account for it; at this rate the pool is "
        "full in 20 h 0 min: probably leaked. This is inferred"
    )
    assert finding.tier == "warn"
    stairs: Slow = slow(leaks=False, staircase=6)
    finding = inferred(slow_unexplained=stairs, use_ratio=None)
    assert finding is not None
    assert "in 6 steps that never came down: probably leaked" in finding.sentence
    finding = inferred(slow_unexplained=slow(per_hour=0.5), use_ratio=0.9)
    assert finding is not None
    assert finding.tier == "page", "it is full in 12 minutes"


def test_where_blocks_are_counted_nothing_is_inferred() -> None:
    exact = facts(pool=pool(orphaned=0), idle_floor_ratio=0.9, idle_floor_seconds=9000.0)
    assert KvOrphan().judge(exact) is None
    blind = facts(pool=pool(orphaned=None), idle_floor_ratio=0.9, idle_floor_seconds=9000.0)
    said = KvOrphan().judge(blind)
    assert said is not None
    assert "installed beside the engine" not in said.sentence, "they are there"


def test_an_inferred_leak_over_time() -> None:
    def said(t: float) -> Any:
        still = 10 <= t < 900
        return signals(
            engine="s", hooked=False, idle_floor_ratio=0.3 if still else None, idle_floor_seconds=t if still else 0
        )

    there = lambda t: state(t, engines=(), pages=[page(usage_ratio=0.3, running=0)])  # noqa: E731
    assert phases("kv_orphan", times(1000, 5), said, there=there) == [
        (600.0, "suspect"),
        (605.0, "confirmed"),
        (900.0, "resolved"),
        (960.0, "none"),
    ]


@pytest.mark.parametrize(
    ("ranks", "amount"), [(1, "4.0 MiB, "), (8, "4.0 MiB on each of 8 ranks, "), (None, "4.0 MiB, ")]
)
def test_bytes_are_said_to_be_of_each_rank_where_there_are_several(ranks: int | None, amount: str) -> None:
    leaking = make_engine(world_size=ranks, pool=make_pool(orphaned=4))
    finding = KvOrphan().judge(Facts(pool=leaking.pool, engine=leaking))
    assert finding is not None
    assert f"by no request ({amount}0.4% of the pool)" in finding.sentence
