"""kvtide's levers on this version: each is there or says why not, and those that are change nobody's output."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from engine_hooks.core import hook
from engine_hooks.core.levers.registry import LEVERS
from engine_hooks.levers.orders import ActionOrder, ActionResult
from engine_hooks.settings import Settings
from tests.bed.fake_executor import BLOCK_SIZE
from tests.bed.scheduler import make_request
from tests.compat.build import MAX_STEPS, make_engine

ALL = Settings.from_environment(
    {"KVTIDE_SOCKET": "/proc/none/agent.sock", "KVTIDE_LEVERS": ",".join(lever.NAME for lever in LEVERS)}
)
PULLED: dict[str, dict[str, Any]] = {
    "watermark": {"ratio": 0.4},
    "active_cap": {"requests": 4},
    "batch_tokens": {"factor": 0.1},
    "evict_idle": {"idle_seconds": 0.0, "turns": 0, "priority": {"t0": 1}},
    "hold_hot": {"cycle_seconds": 1},
    "preempt": {"requests": 2, "cap": True},
    "pause": {},
    "reset_prefix": {"running": True},
}


def order(desk: Any, number: int, lever: str, op: Any, arguments: dict[str, Any]) -> ActionResult:
    result: ActionResult = desk.execute(
        ActionOrder(action=f"a{number}", lever=lever, op=op, instance=desk._instance, arguments=arguments), 0.0
    )
    return result


def play(engine: Any, desk: Any = None) -> tuple[dict[str, list[int]], set[str]]:
    """Run a load to its end, with levers pulled and let go if there is a desk; return outputs, and what was done."""
    draw, out, done = random.Random(5), defaultdict[str, list[int]](list), set[str]()
    schedule = random.Random(6)

    def step() -> None:
        outputs, _ = engine.step_fn()
        for one in (outputs or {}).values():
            for output in one.outputs:
                out[output.request_id] += output.new_token_ids

    for number in range(60):
        hasher = engine.request_block_hasher
        prompt, tokens = draw.randrange(20, 200), draw.randrange(5, 60)
        request = make_request(number, prompt, tokens, 16, block_size=BLOCK_SIZE, hasher=hasher)
        request.sampling_params.extra_args = {"kvtide": {"tenant": f"t{number % 3}"}}
        engine.add_request(request)
        for _ in range(draw.randrange(4)):
            step()
        if desk is not None:
            lever, arguments = schedule.choice(list(PULLED.items()))
            result = order(desk, number, lever, "apply", arguments)
            assert result.code in ("done", "nothing", "unsafe", "unsupported", "conflict"), result
            done |= {lever} if result.ok else set()
            for _ in range(3):
                step()
            if result.in_force:
                assert order(desk, number, lever, "undo", {}).code == "undone"
    for _ in range(MAX_STEPS):
        if not engine.scheduler.has_requests():
            return dict(out), done
        step()
    raise AssertionError("the load did not come to its end")


def test_each_lever_is_there_or_says_why_not() -> None:
    reporter = hook.attach(make_engine(), ALL)
    try:
        rows = {row.lever: row for row in reporter._desk.rows()}
        assert set(rows) == {lever.NAME for lever in LEVERS}
        for row in rows.values():
            assert row.ok == (not row.reason)
            assert "Error" not in row.reason, "a probe raised"
        assert reporter._guard.errors == {}
        assert rows["evict_idle"].ok
        assert rows["batch_tokens"].ok
    finally:
        reporter.close()


def test_levers_change_nobody_s_output_and_leave_the_pool_whole() -> None:
    engine = make_engine()
    reporter = hook.attach(engine, ALL)
    try:
        outputs, done = play(engine, reporter._desk)
        assert outputs == play(make_engine())[0]
        assert reporter._guard.errors == {}
        report = reporter._accounts.report()
        assert report is not None
        assert (report.held, report.orphaned, report.exact) == (0, 0, True)
        ready = {row.lever for row in reporter._desk.rows() if row.ok}
        # An older one resets its cache only where nothing is held, and here something always is; and where active
        # requests can't be capped, a victim would be back at once.
        left = {"reset_prefix"} if "active_cap" in ready else {"reset_prefix", "preempt"}
        assert (ready & set(PULLED)) - done <= left
    finally:
        reporter.close()


def test_what_has_leaked_comes_back() -> None:
    engine = make_engine()
    reporter = hook.attach(engine, ALL)
    try:
        pool: Any = engine.scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        leaked = pool.get_new_blocks(3)
        audit = reporter._accounts.audit
        assert audit is not None
        assert len(audit.complete().excess) == 3
        lever: Any = reporter._desk._levers["reclaim_orphans"]
        now = lever._context.now() + 60.0
        object.__setattr__(lever._context, "now", lambda: now)
        result = order(reporter._desk, 0, "reclaim_orphans", "apply", {})
        assert (result.code, result.effect["blocks"]) == ("done", 3)
        assert pool.get_num_free_blocks() == free
        assert all(block.ref_cnt == 0 for block in leaked)
        assert audit.complete().excess == {}
    finally:
        reporter.close()
