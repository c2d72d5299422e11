"""Live compaction of a real engine on the CPU beside the only other way to a smaller pool: a restart.

The engine runs in a process of its own (``python -m bench.compaction MODEL``), which prints one line of JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.rows import Row

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "build" / "tiny-model"
SLICE_BUDGET = 0.010  # seconds between two steps, for 200 held blocks
BLOCKS, LINE = 32_768, 6_000
PATIENCE = 900.0  # seconds


def run(quick: bool) -> list[Row]:
    """Return the rows; ``quick``: a shorter load."""
    from tests.bed.tiny_model import build

    build(MODEL)
    command = [sys.executable, "-m", "bench.compaction", str(MODEL), "20" if quick else "60"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(f"the engine has told nothing:\n{ran.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(lines[-1])
    return [
        Row("compaction: requests with other tokens", told["differing"], "requests", 0.0),
        Row("compaction: 200 held blocks, median of slices", told["slice"], "s", SLICE_BUDGET),
        Row("compaction: step p99 while blocks move", told["step_with"], "s"),
        Row("compaction: step p99 of the same load without", told["step_without"], "s"),
        Row("compaction: given back per second, order to last page", told["rate"] / 2**20, "MiB/s"),
        Row("compaction: order to last page given back", told["seconds"], "s"),
        Row("restart: until the engine serves again, all cached gone", told["restart"], "s"),
        Row("compaction: cached blocks kept", told["kept"], "ratio"),
    ]


def main() -> None:
    """Measure one engine; print what was found."""
    began = time.perf_counter()
    from tests.engine.compaction.real_engine import Real, parse

    real = Real(parse([sys.argv[1], "--blocks", str(BLOCKS), "--requests", sys.argv[2], "--longest", "900"]))
    restart = time.perf_counter() - began
    for cache in real.core.model_executor.driver_worker.worker.model_runner.kv_caches:
        cache.fill_(0.0)  # as in an engine that has used all its blocks once
    alone = real.run()
    without = _Steps()
    real.run(without)
    moving = _Moving(real)
    out = real.run(moving)
    real.settle()
    released, counts = real.compactor.counts.released_bytes or 0, real.compactor.counts
    seconds = max(1e-9, (moving.ended or time.perf_counter()) - moving.began)
    cached = sum(block.block_hash is not None for block in real.pool.blocks)
    print(
        json.dumps(
            {
                "differing": sum(out[key] != alone[key] for key in alone),
                "slice": _slice_seconds(real),
                "step_with": moving.p99(),
                "step_without": without.p99(),
                "rate": released / seconds,
                "seconds": seconds,
                "restart": restart,
                "kept": cached / max(1, cached + counts.dropped),
            }
        )
    )


class _Steps:
    """Notes how long the steps of a load take."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = time.perf_counter()

    def __call__(self, _number: int) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now

    def p99(self) -> float:
        return sorted(self.seconds)[int(0.99 * (len(self.seconds) - 1))]


class _Moving(_Steps):
    """The same, and shrinks the pool in the middle of the load."""

    def __init__(self, real: Any) -> None:
        super().__init__()
        self.real, self.began, self.ended = real, 0.0, 0.0

    def __call__(self, number: int) -> None:
        super().__call__(number)
        if number == 10:
            self.began = time.perf_counter()
            result = self.real.order("apply", to_blocks=LINE)
            if not result.ok:
                raise RuntimeError(result.detail)
        if self.began and not self.ended and self.real.compactor.counts.state == "shrunk":
            self.ended = time.perf_counter()


def _slice_seconds(real: Any) -> float:
    """Median of what 200 blocks take: copied on the worker, and their tables rewritten."""
    from engine_hooks.worker import compaction

    pairs = [(BLOCKS - 1 - number, BLOCKS - 1000 - number) for number in range(200)]  # all of them are offline
    found = []
    for _ in range(9):
        began = time.perf_counter()
        for function in (compaction.copy, compaction.rewrite):
            (row,) = real.core.model_executor.collective_rpc(function, args=(pairs,))
            if "error" in row:
                raise RuntimeError(row["error"])
        found.append(time.perf_counter() - began)
    return sorted(found)[len(found) // 2]


if __name__ == "__main__":
    main()
