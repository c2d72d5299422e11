"""vLLM's scheduler, pool and engine core do exactly the same with our hooks as without: step by step, to the order of
the free queue. And the comparison can fail.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from vllm.v1.engine.core import EngineCore, EngineCoreProc

from engine_hooks.core import hook as core_hook
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.settings import Settings
from tests.bed.play import Play, first_difference
from tests.bed.workload_engine import make_engine
from tests.bed.workloads import WORKLOADS, Workload

NOWHERE = Settings.from_environment({"KVTIDE_SOCKET": "/proc/none/agent.sock"})
WORKLOAD = pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)


@pytest.fixture(autouse=True)
def same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have block hashes start from the same value in every engine; vLLM draws one per engine otherwise."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[EngineCore], EngineReporter]]:
    """Attach to an engine, and have the hooks do all that they ever do in each step; close the links at the end."""
    monkeypatch.setattr("engine_hooks.core.reporter.LONGEST_BUSY_PERIOD", 0.0)
    reporters = []

    def attach(engine: EngineCore) -> EngineReporter:
        reporter = core_hook.attach(engine, NOWHERE)
        monkeypatch.setattr(type(reporter._link), "up", True)
        reporters.append(reporter)
        return reporter

    yield attach
    for reporter in reporters:
        reporter.close()


def nothing() -> None:
    """What meddles with a plain engine."""


def busy_hooks(engine: EngineCore, reporter: EngineReporter, seed: int) -> Callable[[], None]:
    """Return what happens between steps of a watched engine: orders, wake-ups, audits in slices, reports."""
    draw, accounts = random.Random(seed), reporter._accounts

    def look() -> None:
        if isinstance(engine, EngineCoreProc) and draw.random() < 0.3:
            engine.input_queue.put_nowait((core_hook.WAKE_UP, None))
        accounts.request_audit()
        accounts.advance_audit(draw.choice((0.0, 1.0)))  # a part of a pass that goes on in the next steps, or a whole
        report = accounts.report()
        assert report is not None
        assert (report.orphaned, report.over_freed) == (0, 0)

    return look


def play_watched(
    watch: Callable[[EngineCore], EngineReporter], workload: Workload, seed: int, *, process: bool
) -> Play:
    engine = make_engine(workload, process=process)
    reporter = watch(engine)
    assert reporter._accounts.support.ok, reporter._accounts.support.reason
    play = Play(engine, workload, seed, busy_hooks(engine, reporter, seed))
    assert reporter._guard.errors == {}
    assert reporter._steps.number >= len(play.steps)
    report = reporter._accounts.report()
    assert report is not None
    assert (report.held, report.orphaned, report.over_freed, report.exact) == (0, 0, 0, True)
    assert report.ledger_drift == 0
    return play


@pytest.mark.parametrize(("process", "seed"), [(True, 1), (True, 2), (False, 3)], ids=["core-1", "core-2", "inline-3"])
@WORKLOAD
def test_every_step_is_the_same(
    workload: Workload, process: bool, seed: int, watch: Callable[[EngineCore], EngineReporter]
) -> None:
    plain = Play(make_engine(workload, process=process), workload, seed, nothing)
    missing = {what for what in workload.shows if not plain.seen[what]}
    assert not missing, f"the workload shows no {missing}: {dict(plain.seen)}"
    watched = play_watched(watch, workload, seed, process=process)
    assert first_difference(plain.steps, watched.steps) is None


# -- the controls: each changes one thing that a hook might, once, in the middle of a play -------------------------


def frees_in_another_order(engine: EngineCore) -> None:
    pool = engine.scheduler.kv_cache_manager.block_pool
    free = pool.free_blocks
    pool.free_blocks = once(lambda blocks: free(list(blocks)[::-1]), free)


def keeps_a_block(engine: EngineCore) -> None:
    engine.scheduler.kv_cache_manager.block_pool.get_new_blocks(1)


def moves_a_free_block(engine: EngineCore) -> None:
    pool = engine.scheduler.kv_cache_manager.block_pool
    pool.free_blocks(pool.get_new_blocks(1)[::-1])
    last = pool.free_block_queue.get_all_free_blocks()[-1]
    pool.free_block_queue.remove(last)
    pool.free_block_queue.prepend_n([last])


def drops_a_hash(engine: EngineCore) -> None:
    pool = engine.scheduler.kv_cache_manager.block_pool
    hashed = next(block for block in pool.blocks if block.block_hash is not None)
    pool.evict_blocks({hashed.block_id})


def counts_a_reference(engine: EngineCore) -> None:
    next(b for b in engine.scheduler.kv_cache_manager.block_pool.blocks if b.ref_cnt).ref_cnt += 1


def touches_a_table(engine: EngineCore) -> None:
    """As ``defaultdict[...]`` does where ``get`` was meant."""
    engine.scheduler.kv_cache_manager.coordinator.single_type_managers[0].req_to_blocks["not a request"]


def swallows_an_output(engine: EngineCore) -> None:
    step = engine._process_engine_step

    def swallow() -> Any:
        done = step()
        if not engine.output_queue.empty():
            engine.output_queue.get_nowait()
        return done

    engine._process_engine_step = once(swallow, step)


def preempts(engine: EngineCore) -> None:
    engine.scheduler._preempt_request(engine.scheduler.running.pop(), 0.0)


def once(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    """Return what calls ``first`` the first time and ``then`` ever after."""
    calls = itertools.chain([first], itertools.repeat(then))

    def call(*args: Any) -> Any:
        return next(calls)(*args)

    return call


CONTROLS = (
    frees_in_another_order,
    keeps_a_block,
    moves_a_free_block,
    drops_a_hash,
    counts_a_reference,
    touches_a_table,
    swallows_an_output,
    preempts,
)
CONTROLLED = next(workload for workload in WORKLOADS if workload.name == "prefix sharing")
PLANTED_AT = 60
SOON = 10  # steps


@pytest.fixture(scope="module")
def reference() -> Play:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "0")
        return Play(make_engine(CONTROLLED, process=True), CONTROLLED, 1, nothing)


@pytest.mark.parametrize("planted", CONTROLS)
def test_a_change_is_noticed_soon(planted: Callable[[EngineCore], None], reference: Play) -> None:
    engine = make_engine(CONTROLLED, process=True)
    steps = itertools.count()

    def meddle() -> None:
        if next(steps) == PLANTED_AT:
            planted(engine)

    changed = Play(engine, CONTROLLED, 1, meddle)
    difference = first_difference(reference.steps, changed.steps)
    assert difference is not None, f"{planted.__name__} went unnoticed"
    at = int(difference.split(":")[0].removeprefix("step "))
    assert abs(at - PLANTED_AT) <= SOON, difference[:500]


def test_the_twin_of_the_controls_is_the_same(reference: Play) -> None:
    again = Play(make_engine(CONTROLLED, process=True), CONTROLLED, 1, nothing)
    assert first_difference(reference.steps, again.steps) is None
    assert len(again.steps) > 2 * PLANTED_AT
    other_seed = Play(make_engine(CONTROLLED, process=True), CONTROLLED, 2, nothing)
    assert first_difference(reference.steps, other_seed.steps) is not None
