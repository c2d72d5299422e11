"""Every report is a test, or is left out for a stated reason."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.unit.cases.left_out import LEFT_OUT

REPORTS = Path(__file__).parents[4] / "shared" / "cases" / "reports.jsonl"
HERE = Path(__file__).parent
ID = re.compile(r"(?<![a-z])(?:kv|sg|gpu|frag|host|lm|met|nv|cold)[-_]\d\d(?!\d)")


def test_every_report_is_a_test_or_left_out_for_a_reason() -> None:
    if not REPORTS.exists():
        pytest.skip(f"the reports are not here: {REPORTS}")
    ids = {json.loads(line)["id"] for line in REPORTS.read_text().splitlines()}
    texts = [path.read_text() for path in HERE.glob("test_*_cases.py")]
    tested = {found.replace("_", "-") for text in texts for found in ID.findall(text)}
    assert ids - tested - set(LEFT_OUT) == set()
    assert set(LEFT_OUT) & tested == set(), "tested after all"
    assert set(LEFT_OUT) <= ids
