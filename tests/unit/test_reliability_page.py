"""docs/reliability.md names tests: each is there, and each fault of `make chaos` is one of its own."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bed.faults import FAULTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text()


def test_every_test_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:unit|engine|e2e)/[a-z_/]+\.py)`", PAGE))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).is_file()] == []


def test_every_row_names_a_test() -> None:
    part = PAGE.partition("## What breaks")[2].partition("## What stays")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ") and line.count("|") == 4]
    faults = [row for row in rows if not row.startswith("| what happens")]
    assert len(faults) > 25
    assert [row for row in faults if not re.search(r"`(?:unit|engine|e2e)/", row)] == []


def test_faults_at_random_say_what_they_are() -> None:
    assert len(FAULTS) >= 10
    assert all(fault.__doc__ for fault in FAULTS.values())
