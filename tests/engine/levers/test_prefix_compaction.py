"""Blocks that were never found go first: what that does to the hit ratio and to what is computed twice.

A real EngineCore with vLLM's scheduler and pool, an order a minute, the same load for one seed with it and without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.bed.conversations import JOBS, PEOPLE, Found, Mix, talk
from tests.engine.levers.remembering import Play
from tests.engine.levers.test_evict_idle import Clocked

MakePlay = Callable[..., Play]

EVERY_SECONDS = 60.0  # the agent's cooldown of one lever
TIGHT = 140  # blocks of the pool: when a conversation's next turn comes vLLM's own order has just overwritten it


class Outcome(NamedTuple):
    """What came of a load. ``rebuilt``: tokens computed again whose block was evicted, by kvtide's own count."""

    told: Found
    rebuilt: int
    never_hit: int
    orders: int


def play_load(play: MakePlay, mix: Mix, blocks: int, *, acted: bool, seed: int = 1) -> Outcome:
    """Run the load; ``acted``: with an order a minute."""
    bed = Clocked(play, blocks)
    began, counts = bed.now, [0, 0]

    def advance(now: float) -> None:
        bed.now = began + now
        if acted and now and now % EVERY_SECONDS == 0:
            free = bed.game.pool.get_num_free_blocks()
            result = bed.game.order("evict_idle")
            assert result.code in ("done", "nothing"), result
            assert bed.game.pool.get_num_free_blocks() == free, "it frees nothing"
            assert not any("free" in name or "bytes" in name for name in result.effect), "and does not say so"
            counts[0] += 1
            counts[1] += int(result.effect.get("never_hit", 0))

    def say(tenant: str, session: str, prompt: list[int]) -> tuple[int, list[int]]:
        request = bed.begin(tenant, session, prompt, tokens=4)
        found = bed.game.scheduler.kv_cache_manager.get_computed_blocks(request)[1]
        bed.game.finish()
        return found, bed.game.out[request.request_id]

    told = talk(mix, seed, advance, say)
    bed.game.check()
    bed.game.check_outputs()
    work: Any = bed.game.context.observers["work"].section(bed.now)
    return Outcome(told, work.rebuilt_evicted_total, counts[1], counts[0])


def note(record: Callable[[str, object], None], **outcomes: Outcome) -> None:
    for name, one in outcomes.items():
        ratios = f"people {one.told.ratio(PEOPLE):.3f}, all {one.told.ratio():.3f}"
        record(name, f"{ratios}, rebuilt {one.rebuilt}, never hit {one.never_hit}")


@pytest.mark.parametrize(
    "mix",
    [Mix(sessions=True), Mix(), Mix(tenants=False), Mix(system=8)],
    ids=["people say sessions", "nobody says a session", "nobody says anything", "a shared system prompt"],
)
def test_beside_prompts_that_come_once_conversations_are_found_again(
    play: MakePlay, mix: Mix, record_property: Callable[[str, object], None]
) -> None:
    without, acted = (play_load(play, mix, TIGHT, acted=acted) for acted in (False, True))
    note(record_property, without=without, acted=acted)
    assert acted.never_hit > 0
    assert acted.told.ratio(PEOPLE) > without.told.ratio(PEOPLE) + 0.1
    assert acted.told.ratio(JOBS) == pytest.approx(without.told.ratio(JOBS), abs=0.02)
    assert acted.rebuilt < 0.8 * without.rebuilt


@pytest.mark.parametrize("blocks", [75, 100])
@pytest.mark.parametrize("sessions", [False, True])
def test_where_all_come_back_it_does_no_harm(
    play: MakePlay, blocks: int, sessions: bool, record_property: Callable[[str, object], None]
) -> None:
    mix = Mix(one_shot_seconds=0.0, sessions=sessions)
    without, acted = (play_load(play, mix, blocks, acted=acted) for acted in (False, True))
    note(record_property, without=without, acted=acted)
    assert acted.orders > 0
    assert without.rebuilt > 0, "the pool is too small: else there would be no harm to do"
    assert acted.told.ratio() >= without.told.ratio() - 0.01
    assert acted.rebuilt <= 1.05 * without.rebuilt + 64


def test_a_fixed_age_does_harm_or_comes_too_late(
    play: MakePlay, record_property: Callable[[str, object], None]
) -> None:
    """The control: so it is learned. Where all come back any age loses what will be asked for, and one that is long
    enough for them is never reached where the pool turns over faster.
    """

    def fixed(mix: Mix, blocks: int, seconds: float) -> Outcome:
        def make(*args: Any, **kwargs: Any) -> Play:
            return _with(play(*args, **kwargs), never_hit_seconds=seconds)

        return play_load(make, mix, blocks, acted=True)

    all_return = Mix(one_shot_seconds=0.0)
    without, short = play_load(play, all_return, 75, acted=False), fixed(all_return, 75, 0.0)
    note(record_property, without=without, short=short)
    assert short.told.ratio() < without.told.ratio() - 0.03
    without, long = play_load(play, Mix(), TIGHT, acted=False), fixed(Mix(), TIGHT, 150.0)
    assert long.told.ratio(PEOPLE) == pytest.approx(without.told.ratio(PEOPLE), abs=0.02)


def _with(game: Play, **arguments: Any) -> Play:
    order = game.order
    game.order = lambda lever, *args, **more: order(lever, *args, **{**arguments, **more})  # type: ignore[method-assign]
    return game
