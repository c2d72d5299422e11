"""What the verdict on a leak says: it fires on any orphaned block and on nothing else."""

from __future__ import annotations

import pytest

from agent.verdicts import DETECTORS
from agent.verdicts.base import Facts
from agent.verdicts.kv_orphan import KvOrphan
from tests.unit.builders import MIB, make_pool
from tests.unit.details import make_detail, make_leak, make_pool_row


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
