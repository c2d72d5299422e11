"""Our hooks beside vLLM's own ``--kv-cache-metrics`` (1 % and all of the blocks sampled), from small to large.

Each is measured against the same scheduler without it; the columns can be compared, there is no budget here.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.paired import BLOCK_TOKENS, WARM_UP_STEPS, AfterStep, Load, Switched, measure
from bench.rows import Row, median_ratio
from bench.scheduler_path import reporting
from engine_hooks.settings import Settings
from tests.bed.agent import AgentProcess

RUNNING = (16, 256, 1024)
POOLS = (10_000, 100_000, 400_000)
PROMPT = 32
PAIRS = 16


class _VllmMetrics:
    """vLLM's residency sampling on one pool, at ``rate``."""

    after_step: AfterStep | None = None

    def __init__(self, scheduler: Any, rate: float) -> None:
        from vllm.v1.core.kv_cache_metrics import KVCacheMetricsCollector

        self._pool = scheduler.kv_cache_manager.block_pool
        self._collector = KVCacheMetricsCollector(rate)
        self.on()

    def off(self) -> None:
        self._pool.metrics_collector = None

    def on(self) -> None:
        self._pool.metrics_collector = self._collector

    def check(self) -> None:
        if self._collector.sample_rate == 1.0 and not self._collector.block_metrics:
            raise RuntimeError("vLLM's collector sampled nothing")


def _kinds(settings: Settings) -> dict[str, Callable[[Any], Iterator[Switched]]]:
    return {
        "kvtide": lambda scheduler: reporting(scheduler, settings),
        "vllm_1pct": lambda scheduler: iter([_VllmMetrics(scheduler, 0.01)]),
        "vllm_100pct": lambda scheduler: iter([_VllmMetrics(scheduler, 1.0)]),
    }


def run(quick: bool) -> list[Row]:
    """Return the ratio of each for every number of running requests and every size of pool."""
    rows: list[Row] = []
    folder = Path(tempfile.mkdtemp(prefix="kvtide-"))
    try:
        with AgentProcess(folder) as agent:
            for running in RUNNING:
                for blocks in POOLS:
                    # What each may still generate before the pool is full.
                    room = int(0.95 * blocks) // running * BLOCK_TOKENS - PROMPT - BLOCK_TOKENS - WARM_UP_STEPS
                    rounds = min(12, room // 4)
                    if rounds < 4:  # 1,024 requests and their warm-up leave no room in 10,000 blocks
                        continue
                    count = 4 if quick else PAIRS
                    load = Load(running=running, blocks=blocks, prompt=PROMPT, steps=min(room, 4 * rounds * count))
                    for name, put_on in _kinds(Settings.from_environment(agent.engine_env())).items():
                        measured = measure(put_on, load, count, rounds)
                        rows.append(
                            median_ratio(
                                f"beside_vllm.{name}.{running}_running.{blocks // 1000}k_blocks", measured.steps
                            )
                        )
    finally:
        shutil.rmtree(folder)
    return rows
