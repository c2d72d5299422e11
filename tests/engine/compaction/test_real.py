"""Compaction of a real vLLM engine on the CPU with saved weights: tokens, accounts and memory. One process per case.

Long forms by hand: ``python -m tests.engine.compaction.real_engine build/tiny-model --cycles 100``, also with
``--asynchronous``, ``--tensor-parallel 2``, ``--drafts``, and ``--blocks 90``: a pool that is tight for the load.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bed.tiny_model import build

ROOT = Path(__file__).parents[3]
PATIENCE = 600  # seconds
BLOCK_BYTES = 32_768
OFFLINE = 2499  # of 2999 blocks, when one in six is left


def play(*options: str) -> dict[str, Any]:
    model = ROOT / "build" / "tiny-model"
    build(model)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.engine.compaction.real_engine", str(model), "--requests", "10", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    assert lines, ran.stderr[-3000:]
    told: dict[str, Any] = json.loads(lines[-1])
    assert told["same_without"], "the same load twice is the same tokens: else nothing could be compared"
    return told


@pytest.mark.parametrize(
    "options", [("--control",), ("--asynchronous",)], ids=["one step at a time", "steps in flight"]
)
def test_tokens_are_the_same_the_accounts_are_clean_and_memory_goes_and_comes(options: tuple[str, ...]) -> None:
    told = play("--cycles", "4", *options)
    assert told["queue"] == ("--asynchronous" in options)
    assert told["differing"] == 0
    assert told["begun"] == 4
    assert told["moved"] + told["moved_idle"] > 0
    assert (told["unclean"], told["errors"], told["offline"], told["capacity"]) == (0, {}, 0, 2999)
    before, small, after = told["resident"]
    assert told["state"] == "shrunk"
    assert told["released"] >= 0.95 * OFFLINE * BLOCK_BYTES
    assert before - small > 0.9 * OFFLINE * BLOCK_BYTES
    assert after - small > 0.9 * OFFLINE * BLOCK_BYTES
    if "--control" in options:
        assert told["control"] > 0, "without the copies tokens must differ: else they would show nothing"


def test_a_worker_that_is_killed_in_mid_move_ends_the_engine_before_a_wrong_token() -> None:
    told = play("--kill", "rewrite")
    assert told["raised"] == 1
    assert (told["stepped"], told["more"], told["wrong"]) == (0, False, 0)
    assert told["told"] > 0
