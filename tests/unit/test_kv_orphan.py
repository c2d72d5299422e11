"""What the verdict on a leak says: it fires on any orphaned block and on nothing else."""

from __future__ import annotations

import pytest

from agent.verdicts import DETECTORS
from agent.verdicts.kv_orphan import KvOrphan
from tests.unit.builders import MIB, make_pool


def test_it_is_registered_once() -> None:
    assert [detector.kind for detector in DETECTORS] == ["kv_orphan"]
    assert KvOrphan.confirm_seconds == 3.0


@pytest.mark.parametrize("orphaned", [0, None])
@pytest.mark.parametrize("held", [0, 300, 1000])
def test_no_leak_no_finding_however_full(orphaned: int | None, held: int) -> None:
    assert KvOrphan().judge(make_pool(orphaned=orphaned, held=held)) is None


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
    finding = KvOrphan().judge(make_pool(**changes))
    assert finding is not None
    assert finding.sentence.startswith(start)
    assert finding.sentence.endswith(".")
    assert "restart" in finding.remedy


def test_the_evidence_has_bytes_only_where_they_are_known() -> None:
    finding = KvOrphan().judge(make_pool(orphaned=4))
    assert finding is not None
    assert finding.evidence == {"orphaned_blocks": 4, "orphaned_ratio": 0.004, "orphaned_bytes": 4 * MIB}
    finding = KvOrphan().judge(make_pool(orphaned=4, block_bytes=None))
    assert finding is not None
    assert finding.evidence == {"orphaned_blocks": 4, "orphaned_ratio": 0.004}
