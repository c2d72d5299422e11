"""Pins that nobody can explain, before they count as leaks; explained ones never fire."""

from __future__ import annotations

import pytest

from agent.verdicts.base import Facts, Finding
from agent.verdicts.kv_pinned import KvPinned
from engine_hooks.detail import PinRow
from tests.unit.builders import make_pool
from tests.unit.details import make_detail, make_pin

UNKNOWN = {"known": False, "holder": "OddConnector", "orphaned_after_seconds": 600.0}


def judge(*rows: PinRow) -> Finding | None:
    return KvPinned().judge(Facts(pool=make_pool(), detail=make_detail(pins=rows)))


@pytest.mark.parametrize(
    "row",
    [
        make_pin(oldest_seconds=9000.0),
        make_pin(oldest_seconds=9000.0, orphaned_after_seconds=600.0),
        make_pin(**UNKNOWN, oldest_seconds=300.0),
        make_pin(**UNKNOWN, oldest_seconds=None),
        make_pin(**UNKNOWN, oldest_seconds=500.0, references=0),
        make_pin(known=False, oldest_seconds=500.0, orphaned_after_seconds=None),
    ],
)
def test_it_is_quiet_while_they_are_young_or_explained(row: PinRow) -> None:
    assert judge(row) is None


def test_it_is_quiet_where_nothing_is_told() -> None:
    assert judge() is None
    for detail in (None, make_detail(pins=None)):
        assert KvPinned().judge(Facts(pool=make_pool(), detail=detail)) is None


def test_it_fires_at_half_the_age() -> None:
    finding = judge(make_pin(oldest_seconds=9000.0), make_pin(**UNKNOWN, oldest_seconds=301.0))
    assert finding is not None
    assert finding.sentence == (
        "12 references are held by OddConnector alone, which kvtide can't see into; the oldest for 5 min. "
        "At 10 min their blocks count as leaked."
    )
    assert finding.evidence == {"pinned_references": 12, "oldest_seconds": 301.0, "limit_seconds": 600.0}


def test_one_reference_is_one() -> None:
    finding = judge(make_pin(**UNKNOWN, references=1, oldest_seconds=301.0))
    assert finding is not None
    assert finding.sentence.startswith("1 reference is held by OddConnector alone")
