"""What many who ask cost: states are rendered for them as far as a share of a core allows, and never get old; the loop
serves others meanwhile.
"""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import Callable, Iterator

import pytest

from agent.state import AgentState
from exporters.exposition import Exposition
from exporters.pages import AHEAD_SECONDS, FEW_AT_ONCE, FEW_PER_SECOND, OLDEST_SECONDS, SHARE, TURN_SECONDS, Page
from tests.unit.builders import make_engine, make_silent, make_state
from tests.unit.busy_node import busy_node

COST = 0.01  # of one rendering
PIECES = 5


class Pieces:
    """A rendering whose work is in ``PIECES`` pieces, which are told to ``spend``."""

    def __init__(self, spend: Callable[[], None]) -> None:
        self._exposition, self._spend = Exposition(), spend
        self.fails = False

    def steps(self, state: AgentState, *, compressed: bool) -> Iterator[None]:
        for _ in range(PIECES):
            self._spend()
            yield
        if self.fails:
            raise ValueError("no text can be made of it")
        self._exposition.render(state, compressed=compressed)

    def last(self, *, compressed: bool) -> bytes:
        return self._exposition.last(compressed=compressed)


class Bed:
    """A page over states that are new whenever somebody asks, each a hundredth of a second's work."""

    def __init__(self, cost: float = COST) -> None:
        self.now = self.spent = 0.0
        self.made, self._cost = 0, cost
        self.rendering = Pieces(self._spend)
        self.page = Page(self._snapshot, self.rendering, clock=lambda: self.now, spent=lambda: self.spent)

    def _spend(self) -> None:
        self.spent += self._cost / PIECES

    def _snapshot(self) -> AgentState:
        self.made += 1
        return make_state(make_silent(), version=str(self.made))

    async def ask(self, seconds: float, *, compressed: bool = False) -> int:
        """Go on by ``seconds`` and ask; return which state the answer is of. What is made beside has time to end."""
        self.now += seconds
        body = await self.page.get(compressed=compressed)
        await turns()
        return number_in(gzip.decompress(body) if compressed else body)

    async def be_many(self) -> None:
        """Ask until the answer is not of that moment any more, and so often that no time is left to make one."""
        for _ in range(100):
            await self.ask(0.001)


def number_in(body: bytes) -> int:
    (line,) = (each for each in body.decode().splitlines() if each.startswith("kvtide_build_info"))
    return int(line.split('"')[1])


async def turns(count: int = 2 * PIECES) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_who_asks_now_and_then_always_gets_the_state_of_that_moment() -> None:
    bed = Bed()
    assert [await bed.ask(1.0, compressed=turn % 2 == 0) for turn in range(100)] == [*range(1, 101)]


async def test_some_may_ask_one_after_another() -> None:
    bed = Bed()
    assert [await bed.ask(0.001) for _ in range(10)] == [*range(1, 11)]


async def test_those_who_ask_at_once_share_one_rendering() -> None:
    bed = Bed()
    bodies = await asyncio.gather(*(bed.page.get() for _ in range(10)))
    assert [number_in(body) for body in bodies] == [1] * 10


async def test_who_asks_while_one_is_made_gets_that_one_and_who_asks_then_the_next() -> None:
    bed = Bed()
    first = asyncio.ensure_future(bed.page.get())
    await turns(2)
    assert bed.made == 1
    assert not first.done()
    bed.now += 0.001
    assert number_in(await bed.page.get()) == 1
    assert number_in(await first) == 1
    assert await bed.ask(0.001) == 2


async def test_whoever_asks_at_whatever_moment_is_answered() -> None:
    bed = Bed(cost=TURN_SECONDS * PIECES)
    answers = []
    for _ in range(10):  # at each turn of the loop, so at the one in which a rendering ends, too
        bed.now += 0.001
        answers.append((bed.made, asyncio.ensure_future(bed.page.get())))
        await asyncio.sleep(0)
    assert all([number_in(await answer) >= made for made, answer in answers])


async def test_fifty_times_a_second_costs_no_more_than_its_share() -> None:
    bed = Bed()
    for _ in range(50 * 60):
        await bed.ask(0.02, compressed=True)
    assert bed.spent <= SHARE * 60 + AHEAD_SECONDS + 2 * COST
    assert bed.spent >= SHARE * 60, "and what may be used for fresh states is used"


@pytest.mark.parametrize("cost", [COST, 3.0])
async def test_nothing_is_older_than_a_second_whatever_it_costs(cost: float) -> None:
    bed = Bed(cost=cost)
    answers = [(bed.now, await bed.ask(0.1)) for _ in range(300)]
    for _, group in itertools.groupby(answers, key=lambda each: each[1]):
        times = [now for now, _ in group]
        assert times[-1] - times[0] <= OLDEST_SECONDS + 1e-9


async def test_one_that_takes_too_long_is_made_once_more_for_who_asks_late() -> None:
    bed = Bed()
    await bed.be_many()
    bed.now += OLDEST_SECONDS / 2
    await bed.page.get()  # it is being made beside
    await asyncio.sleep(0)
    made = bed.made
    bed.now += 1.5 * OLDEST_SECONDS
    assert number_in(await bed.page.get()) == made + 1


async def test_where_many_ask_nobody_waits_for_a_rendering() -> None:
    bed = Bed()
    await bed.be_many()
    last = await bed.ask(0.0)
    made = bed.made
    bed.now += OLDEST_SECONDS / 2
    answer = asyncio.ensure_future(bed.page.get())
    await asyncio.sleep(0)
    assert answer.done()
    assert number_in(answer.result()) == last
    await turns()
    assert bed.made == made + 1, "which was made beside it"
    assert await bed.ask(0.0) == made + 1


async def test_after_a_rest_there_is_time_again() -> None:
    bed = Bed()
    await bed.be_many()
    assert len({await bed.ask(0.001) for _ in range(20)}) <= 2, "used up"
    await bed.ask(FEW_AT_ONCE / FEW_PER_SECOND)
    for _ in range(3):
        made = bed.made
        assert await bed.ask(0.001) == made + 1


async def test_many_get_the_last_one_also_where_it_is_made_in_no_time() -> None:
    bed = Bed(cost=0.0)
    answers = [(await bed.ask(0.04), bed.made) for _ in range(50)]  # what was made beside has ended then
    assert all(number == made for number, made in answers[:5])
    assert all(number == made - 1 for number, made in answers[-20:]), "of the moment when the one before asked"


async def test_one_state_is_rendered_once_in_either_form() -> None:
    state = make_state(make_engine())
    page = Page(lambda: state, Exposition())
    plain, packed = await page.get(compressed=False), await page.get(compressed=True)
    assert await page.get(compressed=False) is plain
    assert await page.get(compressed=True) is packed
    assert gzip.decompress(packed) == plain


async def test_a_rendering_that_fails_is_told_to_who_waits_for_it_and_the_next_one_is_made() -> None:
    bed = Bed()
    bed.rendering.fails = True
    for _ in range(2):
        with pytest.raises(ValueError, match="no text"):
            await bed.page.get()
    bed.rendering.fails = False
    assert await bed.ask(0.0) == bed.made == 3


async def test_an_old_text_is_not_given_out_where_a_new_one_fails() -> None:
    bed = Bed()
    await bed.be_many()
    bed.rendering.fails = True
    await bed.ask(OLDEST_SECONDS / 2)
    with pytest.raises(ValueError, match="no text"):
        await bed.ask(OLDEST_SECONDS / 2)


async def test_who_goes_away_does_not_take_the_rendering_along() -> None:
    bed = Bed()
    goes = asyncio.ensure_future(bed.page.get())
    stays = asyncio.ensure_future(bed.page.get())
    await turns(2)
    goes.cancel()
    assert number_in(await stays) == 1


@pytest.mark.parametrize("detail", [False, True])
def test_a_rendering_goes_in_many_pieces_and_is_of_one_state(detail: bool) -> None:
    exposition, state = Exposition(detail=detail), busy_node()
    before = exposition.render(make_state(), compressed=True)
    steps = exposition.steps(state, compressed=True)
    pieces = 0
    for _ in steps:
        pieces += 1
        assert exposition.last(compressed=True) == before, "half of two states"
    assert pieces > 10
    whole = Exposition(detail=detail).render(state, compressed=False)
    assert exposition.last(compressed=False) == whole
    assert gzip.decompress(exposition.last(compressed=True)) == whole


@pytest.mark.parametrize("asked", [False, True])
def test_what_was_asked_for_compressed_is_packed_when_it_is_made_again(asked: bool) -> None:
    exposition, state = Exposition(), busy_node()
    exposition.render(make_state(), compressed=asked)
    pieces = sum(1 for _ in exposition.steps(state, compressed=False))
    without = sum(1 for _ in Exposition().steps(state, compressed=False))
    assert (pieces > without) is asked
    assert gzip.decompress(exposition.last(compressed=True)) == exposition.last(compressed=False)
