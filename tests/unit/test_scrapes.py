"""What many scrapers cost: states are rendered for them as far as a share of a core allows, and never get old."""

from __future__ import annotations

import gzip
import itertools

from agent.state import AgentState
from exporters.exposition import AHEAD_SECONDS, OLDEST_SECONDS, SHARE, Page
from tests.unit.builders import make_engine, make_silent, make_state

COST = 0.01  # of one rendering


class Bed:
    """A page over states that are new whenever somebody asks, each a hundredth of a second's work."""

    def __init__(self, cost: float = COST) -> None:
        self.now = self.spent = 0.0
        self.made, self._cost = 0, cost
        self.page = Page(self._snapshot, clock=lambda: self.now, spent=lambda: self.spent)

    def _snapshot(self) -> AgentState:
        self.made += 1
        self.spent += self._cost
        return make_state(make_silent(), version=str(self.made))

    def ask(self, seconds: float, *, compressed: bool = False) -> int:
        """Go on by ``seconds`` and ask; return which state the answer is of."""
        self.now += seconds
        body = self.page.get(compressed=compressed)
        text = (gzip.decompress(body) if compressed else body).decode()
        (line,) = (each for each in text.splitlines() if each.startswith("kvtide_build_info"))
        return int(line.split('"')[1])


def test_who_asks_now_and_then_always_gets_the_state_of_that_moment() -> None:
    bed = Bed()
    assert [bed.ask(1.0, compressed=turn % 2 == 0) for turn in range(100)] == [*range(1, 101)]


def test_some_may_ask_at_once() -> None:
    bed = Bed()
    assert [bed.ask(0.0) for _ in range(10)] == [*range(1, 11)]


def test_fifty_times_a_second_costs_no_more_than_its_share() -> None:
    bed = Bed()
    for _ in range(50 * 60):
        bed.ask(0.02, compressed=True)
    assert bed.spent <= SHARE * 60 + AHEAD_SECONDS + COST
    assert bed.spent >= SHARE * 60, "and what may be used for fresh states is used"


def test_nothing_is_older_than_a_second_whatever_it_costs() -> None:
    bed = Bed(cost=3.0)
    answers = [(bed.now, bed.ask(0.1)) for _ in range(300)]
    for _, group in itertools.groupby(answers, key=lambda each: each[1]):
        times = [now for now, _ in group]
        assert times[-1] - times[0] <= OLDEST_SECONDS + 1e-9


def test_after_a_rest_there_is_time_again() -> None:
    bed = Bed()
    for _ in range(200):
        bed.ask(0.001)
    assert len({bed.ask(0.001) for _ in range(20)}) <= 2, "used up"
    first = bed.ask(AHEAD_SECONDS / SHARE)
    assert bed.ask(0.001) == first + 1


def test_one_state_is_rendered_once_in_either_form() -> None:
    state = make_state(make_engine())
    page = Page(lambda: state)
    plain, packed = page.get(compressed=False), page.get(compressed=True)
    assert page.get(compressed=False) is plain
    assert page.get(compressed=True) is packed
    assert gzip.decompress(packed) == plain
