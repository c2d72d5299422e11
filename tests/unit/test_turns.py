"""The daemon's turns: one after the other, sooner where asked, and what one raises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agent.turns import Turns
from tests.unit.support import eventually_async

NEVER = 3600.0


async def test_turns_follow_each_other_until_the_end() -> None:
    taken: list[int] = []

    def turn() -> float:
        taken.append(1)
        if len(taken) == 3:
            turns.end()
        return 0.0

    turns = Turns(turn)
    turns.soon()
    await turns.ended
    await asyncio.sleep(0.02)
    assert len(taken) == 3


@pytest.mark.parametrize("within", [True, False])
async def test_the_next_is_at_once_where_it_is_asked_for(*, within: bool) -> None:
    taken: list[int] = []
    asked: list[Callable[[], None]] = []

    def turn() -> float:
        taken.append(1)
        if within and len(taken) == 1:
            asked[0]()
        return NEVER

    turns = Turns(turn)
    asked.append(turns.soon)
    turns.soon()
    await eventually_async(lambda: taken)
    if not within:
        turns.soon()
    await eventually_async(lambda: len(taken) == 2)
    turns.end()
    turns.soon()
    await asyncio.sleep(0.02)
    assert len(taken) == 2


async def test_what_a_turn_raises_ends_them() -> None:
    def turn() -> float:
        raise ValueError("so")

    turns = Turns(turn)
    turns.soon()
    with pytest.raises(ValueError, match="so"):
        await turns.ended
