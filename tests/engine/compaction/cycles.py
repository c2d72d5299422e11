"""A hundred shrinks and growths of a real engine under a load that is preempted: one step at a time, and with steps in
flight; a third as many with drafts, and on two ranks.

``python -m tests.engine.compaction.cycles --cycles 100 --seed 0`` (a part of ``make chaos``) ends with 1 when a token
differs, an audit names a block, or nothing was preempted or moved. Each engine has a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PATIENCE = 900  # seconds
# A pool of 89 blocks, and bursts of eight requests that want more than it has.
TIGHT = ("--blocks", "90", "--requests", "24", "--answers", "60", "--burst", "8", "--runs", "60")
KINDS = {"one step at a time": (), "steps in flight": ("--asynchronous",)}
SLOW_KINDS = {"drafts": ("--drafts",), "two ranks": ("--tensor-parallel", "2")}  # a third of the cycles takes as long


def play(*options: str) -> dict[str, Any]:
    """Return what the engine of one process tells; raises ``RuntimeError`` where that is nothing."""
    from tests.bed.tiny_model import build

    model = ROOT / "build" / "tiny-model"
    build(model)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.engine.compaction.real_engine", str(model), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"the engine has told nothing:\n{ran.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def faults_of(told: dict[str, Any], cycles: int) -> list[str]:
    """What is not as it must be after so many cycles under such a load."""
    counts = counts_of(told)
    wrong = {
        "the same load twice differs: nothing can be compared": not told["same_without"],
        "requests with other tokens": told["differing"] > 0,
        "audits that name a block": told["unclean"] > 0,
        "errors of hooks": bool(told["errors"]),
        "blocks still offline": told["offline"] > 0,
        "fewer cycles than wanted": told["begun"] < cycles,
        "a cycle that was not audited at its end or its undoing": told["audited"] < told["begun"] + told["whole"],
        "nothing was preempted": not told["preempted"],
        "no held block moved": not told["moved"],
        "nothing was found in the cache": not told["cached_tokens"],
    }
    return [f"{what}: {counts}" for what, is_so in wrong.items() if is_so]


def counts_of(told: dict[str, Any]) -> str:
    """The numbers of a play, in words."""
    return (
        f"{told['begun']} shrinks begun, {told['whole']} ended, {told['audited']} audits, {told['unclean']} not clean; "
        f"{told['runs']} runs of {told['requests']} requests, {told['differing']} with other tokens; "
        f"{told['preempted']} preemptions, during {told['pressed']} shrinks; {told['cached_tokens']} tokens of prompts "
        f"found in the cache; blocks: {told['moved']} moved, {told['moved_idle']} cached ones moved, {told['dropped']} "
        f"lost, {told['grown']} came back, {told['demanded']} at once"
    )


def main() -> int:
    """Play all, tell how it went, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.engine.compaction.cycles", description=__doc__)
    parser.add_argument("--cycles", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = False
    for kind, more in (KINDS | SLOW_KINDS).items():
        began = time.monotonic()
        cycles = options.cycles if kind in KINDS else max(1, options.cycles // 3)
        told = play(*TIGHT, "--cycles", str(cycles), "--seed", str(options.seed), *more)
        faults = faults_of(told, cycles)
        print(f"[cycles] {kind}, {time.monotonic() - began:.0f} s: {counts_of(told)}")
        for fault in faults:
            print(f"[cycles]   wrong: {fault}")
        sys.stdout.flush()
        failed = failed or bool(faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
