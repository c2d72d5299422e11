"""Over-freed blocks are as loud as leaked ones."""

from __future__ import annotations

import pytest

from agent.state import PoolState
from agent.verdicts.base import Facts
from agent.verdicts.kv_over_freed import KvOverFreed
from tests.unit.builders import make_pool
from tests.unit.details import make_detail, make_leak, make_pool_row


@pytest.mark.parametrize(
    "pool", [None, make_pool(over_freed=0), make_pool(over_freed=None), make_pool(over_freed=0, orphaned=9)]
)
def test_it_is_quiet_without_one(pool: PoolState | None) -> None:
    assert KvOverFreed().judge(Facts(pool=pool, detail=make_detail(pools=(make_pool_row(over_freed=0),)))) is None


@pytest.mark.parametrize(
    ("number", "leaks", "sentence"),
    [
        (
            1,
            None,
            "1 KV block was freed while still in use: another request can be given the same memory and overwrite it.",
        ),
        (
            3,
            (make_leak(), make_leak(kind="over_freed", blocks=3, ending="aborted_engine")),
            "3 KV blocks were freed while still in use: another request can be given the same memory and overwrite it."
            " Last held by tenant acme, request 3fa2b1c4d5e6, aborted in the engine 14 s ago.",
        ),
    ],
)
def test_it_fires_on_any(number: int, leaks: object, sentence: str) -> None:
    finding = KvOverFreed().judge(Facts(pool=make_pool(over_freed=number), detail=make_detail(leaks=leaks, pools=())))
    assert finding is not None
    assert finding.sentence == sentence
    assert finding.evidence == {"over_freed_blocks": number}
    assert "restart" in finding.remedy


def test_it_needs_no_detail() -> None:
    finding = KvOverFreed().judge(Facts(pool=make_pool(over_freed=2)))
    assert finding is not None


def test_pools_beside_the_main_one_count() -> None:
    finding = KvOverFreed().judge(Facts(pool=make_pool(over_freed=0), detail=make_detail(leaks=())))
    assert finding is not None
    assert finding.sentence.startswith("2 blocks were freed while still in use in the pool cpu: ")
    assert finding.evidence == {"over_freed_blocks_beside": 2}
