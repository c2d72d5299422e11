"""The corpus: enough of it, the same each time, and labels that lie in the time that there is."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from agent.state import AgentState
from agent.verdicts import DETECTORS, NODE_DETECTORS
from bench.corpus.catalogue import recipes, scenarios
from bench.corpus.clock import DAY, Clock
from bench.corpus.engine import Engine
from bench.corpus.host import GIB, Cgroup, Process
from bench.corpus.pressure import overload
from bench.corpus.report import report
from bench.corpus.requests import Tenant
from bench.corpus.scenario import Recipe, Scenario
from bench.score.run import chosen

OWN = [recipe for recipe in recipes() if recipe.family not in ("normal", "simulated", "engine")]


def first(recipe: Recipe, number: int = 30) -> list[AgentState]:
    return list(itertools.islice(Scenario(recipe, "evaluation", 0).made().states, number))


def test_there_are_enough_and_half_of_them_are_healthy() -> None:
    own = [each for each in scenarios("evaluation") if each.recipe in OWN]
    healthy = sum(not each.recipe.kind for each in own)
    assert len(own) >= 200
    assert healthy >= len(own) / 2


def test_each_kind_of_verdict_has_twenty_faults_of_several_sorts() -> None:
    """With fewer the lower end of an interval says little, and of one sort only its seeds would differ."""
    faults, sorts = Counter[str](), Counter[str]()
    for recipe in OWN:
        faults[recipe.kind] += recipe.evaluation
        sorts[recipe.kind] += 1
    for detector in (*DETECTORS, *NODE_DETECTORS):
        assert faults[detector.kind] >= 20, detector.kind
        assert sorts[detector.kind] >= 2, detector.kind


def test_names_are_of_one_recipe_each() -> None:
    assert max(Counter(recipe.name for recipe in recipes()).values()) == 1


def test_parts_have_seeds_of_their_own() -> None:
    seeds = Counter(each.seed for part in ("tuning", "evaluation") for each in scenarios(part))
    assert max(seeds.values()) == 1


def test_what_is_unseen_is_not_tuned_on() -> None:
    assert any(recipe.unseen and recipe.kind for recipe in OWN)
    assert not any(each.recipe.unseen for each in scenarios("tuning"))
    kinds = {recipe.kind for recipe in OWN if recipe.unseen} - {recipe.kind for recipe in OWN if not recipe.unseen}
    assert len(kinds) >= 3


def test_the_quick_part_leaves_out_what_is_long() -> None:
    quick = chosen("evaluation", quick=True)
    assert quick
    assert not any(each.recipe.long or each.number for each in quick)


@pytest.mark.parametrize("recipe", OWN, ids=lambda recipe: recipe.name)
def test_a_scenario_is_the_same_each_time(recipe: Recipe) -> None:
    once, again = first(recipe), first(recipe)
    assert once == again
    times = [state.monotonic for state in once]
    assert times == sorted(set(times))


@pytest.mark.parametrize("recipe", OWN, ids=lambda recipe: recipe.name)
def test_labels_are_what_the_recipe_is_for(recipe: Recipe) -> None:
    made = Scenario(recipe, "evaluation", 0).made()
    begin = next(made.states).monotonic
    assert bool(made.labels) == bool(recipe.kind)
    for label in made.labels:
        assert label.onset > begin + 60
        assert label.due_seconds > 0


def test_a_clock_has_gaps_and_jumps_of_the_wall() -> None:
    ticks = list(Clock(Random(3), DAY, 10.0))
    steps = [later.t - tick.t for tick, later in itertools.pairwise(ticks)]
    assert min(steps) > 0
    assert max(steps) > 40
    apart = {round(tick.at - tick.t) for tick in ticks}
    assert len(apart) >= 1
    assert all(tick.monotonic - tick.t == ticks[0].monotonic for tick in ticks[:100])


def test_the_made_up_engine_keeps_its_books() -> None:
    rng = Random(1)
    engine = Engine(rng, [Tenant("a", lambda t: 4.0, prompt=900, output=600)], capacity=2_000)
    preempted = 0
    for tick in Clock(rng, 600.0, 1.0, quiet=True):
        engine.step(tick)
        pool = report(engine, tick).pool
        assert pool is not None
        assert pool.held + (pool.cached_idle or 0) + (pool.empty or 0) == pool.capacity
        assert pool.held == engine.used
        preempted = engine.preempted
    assert preempted > 0
    assert engine.waiting


def test_a_made_up_group_counts_shared_memory_as_the_kernel_does() -> None:
    rng = Random(2)
    process = Process(rng, "m", "core", 7, base=2 * GIB)
    group = Cgroup(rng, "m", [process], 40 * GIB)
    for tick in Clock(rng, 30.0, 5.0, quiet=True):
        process.state(tick)
        group.more = 8 * GIB if tick.t > 10 else 0
        state = group.state(tick)
        assert state.parts is not None
        assert state.parts["anon"] == process.anonymous
        assert state.parts["anon"] + state.parts["file"] == state.current_bytes
        assert state.parts["shmem"] == group.more


def test_an_overload_waits_for_memory_and_not_for_a_slot() -> None:
    """Behind slots that are all taken a queue is no pressure on memory, and a label would be wrong."""
    made = overload(Random(0))
    (label,) = made.labels
    refused = {False: 0, True: 0}
    for state in made.states:
        (engine,) = state.engines
        row = engine.detail.allocation if engine.detail else None
        if row is not None and not label.onset <= state.monotonic < label.onset + label.due_seconds:
            refused[state.monotonic >= label.onset] += bool(row.waiting_refused)
    assert refused[True] > 0
    assert refused[False] == 0
