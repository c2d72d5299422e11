"""Delayed frees are a fault past their lease and never inside it."""

from __future__ import annotations

import pytest

from agent.verdicts.base import Facts, Finding
from agent.verdicts.kv_delayed_free import KvDelayedFree
from engine_hooks.detail import DelayedRow
from tests.unit.builders import make_pool
from tests.unit.details import make_delayed, make_detail

LATE = make_delayed(blocks=40, expired=40, oldest_seconds=720.0)


def judge(*rows: DelayedRow) -> Finding | None:
    return KvDelayedFree().judge(Facts(pool=make_pool(), detail=make_detail(delayed=rows)))


@pytest.mark.parametrize(
    "row",
    [
        make_delayed(),
        make_delayed(oldest_seconds=479.0),
        make_delayed(oldest_seconds=490.0, expired=3),  # the connector lets go at its next step
        make_delayed(oldest_seconds=5000.0, lease_seconds=6000.0),
        make_delayed(oldest_seconds=600.0, lease_seconds=None),
        make_delayed(oldest_seconds=9000.0, lease_seconds=None, blocks=0, requests=0),
        make_delayed(direction="deferred", peer="", oldest_seconds=0.2, lease_seconds=None),
        make_delayed(direction="loading", oldest_seconds=60.0, lease_seconds=None),
    ],
)
def test_it_is_quiet_inside_the_lease_however_much_is_kept(row: DelayedRow) -> None:
    assert judge(row) is None


def test_it_is_quiet_where_nothing_is_told() -> None:
    assert judge() is None
    for detail in (None, make_detail(delayed=None)):
        assert KvDelayedFree().judge(Facts(pool=make_pool(), detail=detail)) is None


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            LATE,
            "40 KV blocks of finished requests are kept for 10.0.0.7:5600 (send) past the lease of 8 min:"
            " the oldest for 12 min.",
        ),
        (
            make_delayed(blocks=40, expired=1, oldest_seconds=720.0),
            "1 KV block of finished requests is kept for 10.0.0.7:5600 (send) past the lease of 8 min:"
            " the oldest for 12 min."
            " At this rate 39 more are always inside it.",
        ),
        (
            make_delayed(lease_seconds=None, oldest_seconds=601.0),
            "40 KV blocks of finished requests are kept for 10.0.0.7:5600 (send), the oldest for 10 min,"
            " and no lease ends that.",
        ),
        (
            make_delayed(peer="", direction="deferred", lease_seconds=None, oldest_seconds=3600.0),
            "40 KV blocks of finished requests are kept for a step in flight, the oldest for 60 min,"
            " and no lease ends that.",
        ),
        (
            make_delayed(direction="loading", lease_seconds=None, oldest_seconds=720.0),
            "40 KV blocks of waiting requests are kept for KV to come from 10.0.0.7:5600, the oldest for 12 min,"
            " and no lease ends that.",
        ),
    ],
)
def test_it_fires_past_the_lease(row: DelayedRow, sentence: str) -> None:
    finding = judge(make_delayed(peer="healthy", blocks=5000), row)
    assert finding is not None
    assert finding.sentence == sentence


def test_the_worst_peer_is_named_and_the_others_are_counted() -> None:
    other = make_delayed(peer="b", blocks=3, expired=3, oldest_seconds=2000.0)
    finding = judge(other, LATE)
    assert finding is not None
    assert "10.0.0.7:5600" in finding.sentence
    assert finding.sentence.endswith(" 1 other lets go no more either.")
    assert finding.evidence == {"late_blocks": 43, "oldest_seconds": 2000.0, "lease_seconds": 480.0}


def test_a_peer_that_is_ours_has_its_own_name() -> None:
    facts = Facts(pool=make_pool(), detail=make_detail(delayed=(LATE,)), peers={"10.0.0.7:5600": "decode"})
    finding = KvDelayedFree().judge(facts)
    assert finding is not None
    assert "kept for engine decode (send) past the lease" in finding.sentence


def test_the_remedy_fits_what_is_waited_for() -> None:
    send, deferred = judge(LATE), judge(make_delayed(direction="deferred", lease_seconds=None, oldest_seconds=900.0))
    assert send is not None
    assert deferred is not None
    assert "peer" in send.remedy
    assert "peer" not in deferred.remedy


@pytest.mark.parametrize(("blocks", "tier"), [(99, "warn"), (100, "page")])
def test_it_pages_for_a_tenth_of_the_pool(blocks: int, tier: str) -> None:
    finding = judge(make_delayed(blocks=blocks, expired=blocks, oldest_seconds=720.0))
    assert finding is not None
    assert finding.tier == tier


def test_a_stream_that_can_not_level_off_inside_the_pool() -> None:
    """240 blocks in two of eight minutes come to 960 at a level; 260 would need more than there is."""

    def kept(blocks: int, held: int) -> Finding | None:
        detail = make_detail(delayed=(make_delayed(blocks=blocks, oldest_seconds=120.0),))
        return KvDelayedFree().judge(Facts(pool=make_pool(held=held), detail=detail))

    assert kept(240, 900) is None
    assert kept(260, 690) is None, "there is room for now"
    finding = kept(260, 900)
    assert finding is not None
    assert (finding.tier, finding.confirm_seconds) == ("warn", 30.0)
    assert finding.sentence == (
        "260 KV blocks are kept for 10.0.0.7:5600 (send), inside the lease, and at this rate they would level off at "
        "1,040; the pool has 1,000: it is full before the lease ends."
    )
    assert finding.evidence == {"delayed_blocks": 260, "plateau_blocks": 1040.0, "capacity_blocks": 1000}
