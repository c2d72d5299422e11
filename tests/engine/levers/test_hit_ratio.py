"""What ``evict_idle`` is for: the priority tenant's hit ratio under pressure, against the same load without it.

A real EngineCore with vLLM's scheduler and pool. Two tenants: one whose people come back to their conversations after
some minutes, one whose jobs ask a few questions in a row and never come again, and say no session.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.bed.fake_executor import BLOCK_SIZE
from tests.engine.levers.remembering import Play
from tests.engine.levers.test_evict_idle import Clocked

MakePlay = Callable[..., Play]

BLOCKS = 165
MINUTES = 60
EVERY_SECONDS = 60.0  # the agent's cooldown of one lever
PEOPLE = 5
GOLD, PLAIN = "gold", "plain"


class Ratios(NamedTuple):
    """Tokens that were found in the cache, of those that were asked for, after the first ten minutes."""

    gold: float
    plain: float
    orders: int
    moved: int


def load(play: MakePlay, seed: int, *, acted: bool) -> Ratios:
    """Run an hour of turns, the same for one ``seed`` whether the lever is pulled or not."""
    bed, draw = Clocked(play, BLOCKS), random.Random(seed)
    asked: Counter[str] = Counter()
    found: Counter[str] = Counter()
    orders = moved = 0

    def say(tenant: str, session: str, prompt: list[int]) -> None:
        request = bed.begin(tenant, session, prompt, tokens=2)
        if bed.now - began > 600.0:
            asked[tenant] += len(prompt)
            found[tenant] += bed.game.scheduler.kv_cache_manager.get_computed_blocks(request)[1]
        bed.game.finish()

    def words(blocks: int) -> list[int]:
        return [draw.randrange(3, 500) for _ in range(blocks * BLOCK_SIZE)]

    began = bed.now
    talks = [words(10) for _ in range(PEOPLE)]
    back = [began + draw.uniform(0.0, 400.0) for _ in range(PEOPLE)]
    job: list[int] = []
    next_job, next_order = began, began + 300.0
    while bed.now < began + 60.0 * MINUTES:
        bed.now += 5.0
        for person in range(PEOPLE):
            if bed.now >= back[person]:
                say(GOLD, f"person-{person}", talks[person])
                talks[person] = talks[person] + words(1)
                if len(talks[person]) > 24 * BLOCK_SIZE:
                    talks[person] = words(10)  # another conversation
                back[person] = bed.now + draw.uniform(330.0, 540.0)  # somebody reads, and has other things to do
        if bed.now >= next_job:
            job = [*job, *words(2)] if job and len(job) < 8 * BLOCK_SIZE else words(4)
            say(PLAIN, "", job)
            next_job = bed.now + draw.uniform(5.0, 15.0)
        if acted and bed.now >= next_order:
            next_order = bed.now + EVERY_SECONDS
            free = bed.game.pool.get_num_free_blocks()
            result = bed.game.order("evict_idle", idle_seconds=300.0, turns=2, priority={GOLD: 1})
            assert result.code in ("done", "nothing"), result
            assert bed.game.pool.get_num_free_blocks() == free, "it frees nothing"
            assert not any("free" in name or "bytes" in name for name in result.effect), "and does not say so"
            orders += 1
            moved += int(result.effect.get("moved", 0))
    bed.game.check()
    bed.game.check_outputs()
    return Ratios(found[GOLD] / asked[GOLD], found[PLAIN] / asked[PLAIN], orders, moved)


def test_the_priority_tenant_s_hit_ratio_is_higher_under_pressure_than_without(
    play: MakePlay, record_property: Callable[[str, object], None]
) -> None:
    without, acted = load(play, 1, acted=False), load(play, 1, acted=True)
    for name, ratios in (("without", without), ("acted", acted)):
        record_property(name, f"gold {ratios.gold:.3f}, plain {ratios.plain:.3f}, moved {ratios.moved}")
    assert acted.moved > 0
    assert acted.gold > without.gold + 0.1
    # The others lose what they never ask for again, and no more than that.
    assert acted.plain == pytest.approx(without.plain, abs=0.02)
