"""How long one slice of the audit keeps the engine's thread, and how much of its time all slices take.

The one budget that is an absolute time: a pause between two steps is felt as such, whatever the step takes. Judged is
the thread's CPU time; by the clock on the wall other processes of a busy machine have their part in it.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import Any

from bench.rows import Row, quantile
from engine_hooks.core.audit import Audit
from engine_hooks.core.ledger import ReferenceLedger
from engine_hooks.core.view import SchedulerView
from engine_hooks.guard import Guard
from tests.bed.scheduler import make_scheduler

BUDGET_MS = 2.0
POOLS = (10_000, 100_000, 400_000)
JUDGED = 400_000
TABLES = 256
TABLE_SHARE = 0.96  # 1,500 blocks in each table of the largest pool
ORPHANS = 3
CHANGES = 16  # blocks that change hands between two slices: 256 requests take one every 16 steps
CACHE_BYTES = 32 << 20  # read between slices, as the engine's step would push our data out of the caches


@dataclass(slots=True)
class _Pauses:
    """Of one pool: each slice's seconds; of whole passes their work, their slices and their share of the time."""

    slices: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    duties: list[float] = field(default_factory=list)


def run(quick: bool) -> list[Row]:
    """Return the pauses for each size of pool; only the largest has a budget."""
    rows = []
    for blocks in POOLS:
        pauses = _measure(blocks, rounds=1 if quick else 6)
        slices = sorted(1000 * pause for pause in pauses.slices)
        name = f"audit_pause.{blocks // 1000}k"
        rows += [
            Row(f"{name}.p50", quantile(slices, 0.5), "ms"),
            Row(f"{name}.p99", quantile(slices, 0.99), "ms", BUDGET_MS if blocks == JUDGED else None),
            Row(f"{name}.max", slices[-1], "ms"),
            Row(f"{name}.wall_p99", 1000 * quantile(sorted(pauses.wall), 0.99), "ms"),
            Row(f"{name}.pass_work", max(pauses.work), "s"),
            Row(f"{name}.pass_slices", max(pauses.counts), "slices"),
            Row(f"{name}.duty", max(pauses.duties), "ratio"),
        ]
    return rows


def _measure(num_blocks: int, rounds: int) -> _Pauses:
    """Run two passes a round: one that finds new orphans, one that looks at the suspects again."""
    scheduler = make_scheduler(num_blocks=num_blocks)
    view = SchedulerView(scheduler)
    pool, (manager,) = view.pool, view.managers
    ledger = ReferenceLedger(view, Guard())
    ledger.install()
    for i in range(TABLES):
        manager.req_to_blocks[f"r{i}"] = pool.get_new_blocks(int(num_blocks * TABLE_SHARE) // TABLES)
    audit = Audit(view, ledger)
    pauses = _Pauses()
    # As vLLM does when an engine has come up: the collector need not look at the pool.
    gc.collect()
    gc.freeze()
    try:
        for _ in range(rounds):
            pool.get_new_blocks(ORPHANS)
            audit.request()
            _whole_pass(audit, pool, manager, pauses)
            _whole_pass(audit, pool, manager, pauses)
    finally:
        gc.unfreeze()
    if audit.finding.orphaned != rounds * ORPHANS or audit.finding.over_freed:
        raise RuntimeError(f"the audit is wrong: {rounds * ORPHANS} orphans were planted, {audit.finding}")
    return pauses


def _whole_pass(audit: Audit, pool: Any, manager: Any, pauses: _Pauses) -> None:
    tables = list(manager.req_to_blocks.values())
    step_data = b"\1" * CACHE_BYTES
    started = time.monotonic()
    work, count = 0.0, 0
    ended = False
    while not ended:
        step_data.count(b"\2")
        for i in range(CHANGES):
            blocks = tables[(count * CHANGES + i) % TABLES]
            pool.free_blocks([blocks.pop()])
            blocks += pool.get_new_blocks(1)
        began, cpu = time.perf_counter(), time.thread_time()
        ended = audit.advance()
        pause = time.thread_time() - cpu
        pauses.wall.append(time.perf_counter() - began)
        pauses.slices.append(pause)
        work += pause
        count += 1
    pauses.work.append(work)
    pauses.counts.append(count)
    if not audit.wants_more:  # it will wait now: no suspects are left
        pauses.duties.append(work / (audit._next_start - started))
