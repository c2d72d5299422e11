"""Our hooks beside vLLM's own ``--kv-cache-metrics`` (1 % and all of the blocks sampled), from small to large.

Each is measured against the same scheduler without it; the columns can be compared, there is no budget here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.paired import AfterStep, Load, Switched, measure
from bench.rows import Row, total_ratio
from bench.scheduler_path import WITHOUT_AGENT, reporting

RUNNING = (16, 256, 1024)
POOLS = (10_000, 100_000, 400_000)
STEPS = 64  # of a pair, half of them with what is measured
PROMPT = 48
MAX_STEPS = 800


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


def run(quick: bool) -> list[Row]:
    """Return the ratio of each for every number of running requests and every size of pool."""
    rows: list[Row] = []
    kinds: tuple[tuple[str, Callable[[Any], Iterator[Switched]]], ...] = (
        ("kvtide", lambda scheduler: reporting(scheduler, WITHOUT_AGENT)),
        ("vllm_1pct", lambda scheduler: iter([_VllmMetrics(scheduler, 0.01)])),
        ("vllm_100pct", lambda scheduler: iter([_VllmMetrics(scheduler, 1.0)])),
    )
    for running in RUNNING:
        for blocks in POOLS:
            room = int(0.9 * blocks) // running * 16 - PROMPT - 16  # tokens that each may still generate
            load = Load(running=running, blocks=blocks, prompt=PROMPT, steps=min(room, MAX_STEPS))
            for name, put_on in kinds:
                pairs, _ = measure(put_on, load, STEPS if room > 4 * STEPS else STEPS // 4, 4 if quick else 24)
                rows.append(total_ratio(f"beside_vllm.{name}.{running}_running.{blocks // 1000}k_blocks", pairs))
    return rows
