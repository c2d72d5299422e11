"""What interrupted drafts leave behind, and drafts that never end."""

from __future__ import annotations

import pytest

from agent.policy.types import Policy, ResiduePolicy
from agent.verdicts.base import Facts, Finding
from agent.verdicts.spec_residue import SpecResidue
from tests.unit.builders import make_engine, make_pool, make_worker
from tests.unit.details import make_detail, make_speculation


def judge(orphaned: int | None, block_bytes: int | None = 1_000_000, **row: object) -> Finding | None:
    pool = make_pool(orphaned=orphaned, block_bytes=block_bytes)
    return SpecResidue().judge(Facts(pool=pool, detail=make_detail(speculation=make_speculation(**row))))


@pytest.mark.parametrize(
    ("orphaned", "row"),
    [
        (0, {}),
        (90, {}),
        (90, {"residue_blocks_total": 50}),
        (0, {"residue_blocks_total": 500}),  # all of it has come back
        (50, {"residue_blocks_total": 500}),
        (None, {"residue_blocks_total": 50}),
        (0, {"interruptions_total": 10_000}),
    ],
)
def test_it_is_quiet_without_a_residue_worth_the_name(orphaned: int | None, row: dict[str, int]) -> None:
    assert judge(orphaned, **row) is None


def test_it_is_quiet_without_speculation() -> None:
    for detail in (None, make_detail(speculation=None)):
        assert SpecResidue().judge(Facts(pool=make_pool(), detail=detail)) is None


@pytest.mark.parametrize(
    ("orphaned", "block_bytes", "size"), [(51, 1_000_000, " (48.6 MiB)"), (None, None, ""), (60, None, "")]
)
def test_it_fires_on_more_than_fifty_megabytes_or_on_any_where_bytes_are_not_known(
    orphaned: int | None, block_bytes: int | None, size: str
) -> None:
    finding = judge(orphaned, block_bytes, residue_blocks_total=51)
    assert finding is not None
    assert finding.sentence == f"11 interrupted drafts left 51 KV blocks{size} behind that nobody gives back."
    assert finding.evidence["residue_blocks"] == 51
    assert ("residue_bytes" in finding.evidence) == (block_bytes is not None)


def test_it_fires_on_stuck_drafts() -> None:
    finding = judge(0, stuck=2)
    assert finding is not None
    assert finding.sentence == "2 requests are stuck in one drafting state for more than 30 s."
    assert finding.evidence["stuck_requests"] == 2


@pytest.mark.parametrize(("blocks", "tier"), [(51, "warn"), (200, "warn"), (201, "page")])
def test_it_pages_by_the_policy(blocks: int, tier: str) -> None:
    finding = judge(300, residue_blocks_total=blocks)
    assert finding is not None
    assert finding.tier == tier
    policy = Policy(residue=ResiduePolicy(warn_bytes=300_000_000, page_bytes=300_000_000))
    detail = make_detail(speculation=make_speculation(residue_blocks_total=blocks))
    assert SpecResidue().judge(Facts(pool=make_pool(orphaned=300), detail=detail, policy=policy)) is None


def of_rank(ranks: int, node: int | None, orphaned: int = 30) -> Finding | None:
    workers = tuple(make_worker(rank=rank) for rank in range(ranks))
    return SpecResidue().judge(
        Facts(
            pool=make_pool(orphaned=orphaned, block_bytes=1_000_000),
            detail=make_detail(speculation=make_speculation(residue_blocks_total=30)),
            engine=make_engine(members=workers, world_size=ranks),
            node_residue_bytes=node,
        )
    )


def test_what_counts_is_what_the_node_has_lost() -> None:
    assert of_rank(1, 30_000_000) is None
    both, own = of_rank(1, 60_000_000), of_rank(2, 60_000_000)
    assert both is not None
    assert own is not None
    assert both.sentence.endswith(
        "30 KV blocks (28.6 MiB) behind that nobody gives back. On this node it is 57.2 MiB in all."
    )
    assert own.sentence.endswith("30 KV blocks (28.6 MiB on each of 2 ranks) behind that nobody gives back.")
    assert (both.evidence["residue_bytes"], both.evidence["node_residue_bytes"]) == (30_000_000, 60_000_000)
    assert (page := of_rank(8, None)) is not None
    assert page.tier == "page"


def test_an_engine_that_has_lost_nothing_is_not_told_for_its_neighbours() -> None:
    assert of_rank(1, 500_000_000, orphaned=0) is None
