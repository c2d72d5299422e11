"""The hooks' books are bounded: what they hold when all are full is what they hold after as much again."""

from __future__ import annotations

from pathlib import Path

from engine_hooks.core.endings import MAX_CAUGHT, MAX_REMEMBERED
from engine_hooks.core.rebuild import MAX_EVICTED
from engine_hooks.core.sessions import MAX_IDLE
from tests.bed.hook_memory import CEILING_MIB, measure

SCALE = 16  # as large as in earnest it takes minutes: python -m tests.bed.hook_memory
FIXED_MIB = 1.5  # what is no book: observers, the audit's and the ledger's tables, the link
SLACK_MIB = 0.15  # tables that double


def test_full_books_hold_no_more_after_as_much_again(tmp_path: Path) -> None:
    held = measure(tmp_path, SCALE)
    assert held.entries["ended"] == MAX_REMEMBERED // SCALE
    assert held.entries["caught"] == MAX_CAUGHT // SCALE
    assert held.entries["sessions"] == MAX_IDLE // SCALE
    assert held.entries["evicted"] == MAX_EVICTED // SCALE - 1
    assert held.once < CEILING_MIB / SCALE + FIXED_MIB
    assert held.twice < held.once + SLACK_MIB
