"""Weights wait for their intent, refusals have a reason, and what was isolated stays so over a restart of the agent."""

from __future__ import annotations

import msgspec
import pytest

from agent.actions.types import Refusal
from agent.balancer.coordinator import Grant, NoCoordinator
from agent.balancer.kept import KeptTracks
from agent.balancer.marks import PersonMark
from tests.unit.balancer.made import Agrees, Node, Written, signals

LEAK = signals(0.09, lasts=200.0)
HALF = signals(0.06)
CALM = signals()


async def test_nothing_is_taken_away_before_its_intent_is_written() -> None:
    node = Node(Agrees())
    await node.look(CALM)
    node.moves.waits = True
    assert await node.look(HALF, seconds=5) == 100
    assert len(node.moves.waiting) == 1, "one intent, not one each second"
    assert node.moves.waiting.pop()(True)
    assert await node.look(HALF) == 50
    assert node.balancer.state.engines[0].told.percent == 50


async def test_without_its_intent_it_is_not_done_and_tried_again() -> None:
    node = Node(Agrees())
    await node.look(CALM)
    node.moves.fails = True
    assert await node.look(HALF, seconds=5) == 100
    node.moves.fails = False
    assert await node.look(HALF) == 50


async def test_what_is_given_back_or_a_person_wants_waits_for_no_journal() -> None:
    node = Node(Agrees())
    assert await node.look(HALF, seconds=3) == 50
    node.moves.fails = True
    node.marked = PersonMark(mark="drain", by="ann", why="INC-1")
    assert await node.look(HALF) == 0
    assert node.balancer.told("m").why == "ann holds it: drain (INC-1)"
    node.marked = None
    assert await node.look(CALM) == 100
    assert [(each.by, each.now.percent) for each in node.moves.moves[1:]] == [("ann", 0), ("agent", 100)]


async def test_what_is_not_wanted_any_more_when_its_intent_is_written_is_not_done() -> None:
    node = Node(Agrees())
    await node.look(CALM)
    node.moves.waits = True
    await node.look(HALF, seconds=2)
    late = node.moves.waiting.pop()
    node.stop = Refusal(code="switched_off", text="off")
    await node.look(HALF)
    assert not late(True)
    assert node.balancer.told("m").percent == 100


async def test_an_agent_that_ends_makes_no_move_that_is_on_its_way() -> None:
    node = Node(Agrees())
    await node.look(CALM)
    node.moves.waits = True
    await node.look(HALF, seconds=2)
    node.balancer.let_go()
    assert not node.moves.waiting.pop()(True)
    assert node.balancer.told("m").percent == 100


@pytest.mark.parametrize(
    ("changes", "stop", "mark", "code"),
    [
        ({"mode": "observe"}, None, None, "observe"),
        ({"mode": "dry-run"}, None, None, "observe"),
        ({}, Refusal(code="vetoed", text="vetoed by ann"), None, "vetoed"),
        ({}, None, PersonMark(mark="up", by="ann"), "yield"),
    ],
)
async def test_each_refusal_has_its_reason(
    changes: dict[str, str], stop: Refusal | None, mark: PersonMark | None, code: str
) -> None:
    node = Node(Agrees(), **changes)
    node.stop, node.marked = stop, mark
    await node.look(CALM, seconds=3)
    assert node.moves.refused == []
    await node.look(HALF, seconds=2)
    assert set(node.moves.refused) == {("m", code)}


async def test_a_share_that_is_used_up_is_a_refusal() -> None:
    node = Node(Agrees(Grant(granted=False, why="3 of 9 are below 50 % already, 2 may be")))
    await node.look(LEAK, seconds=5)
    assert set(node.moves.refused) == {("m", "share")}


async def restarted(node: Node, coordinator: Agrees, away: float, *, mode: str = "enforce") -> Node:
    """Another agent, ``away`` seconds after the last look of the one before."""
    after = Node(coordinator, moves=Written(node.moves.last), mode=mode)
    after.clock.now = node.clock.now + away
    return after


async def test_an_isolation_goes_on_over_a_restart_of_the_agent() -> None:
    node = Node(Agrees())
    assert await node.look(LEAK, seconds=4) == 0
    await node.look(LEAK, seconds=40)
    after = await restarted(node, Agrees(), 30.0)
    assert await after.look(CALM) == 50, "below it only by a grant, which is asked for"
    assert await after.look(CALM) == 0
    # 300 s of isolation in all: 74 are over, of which the agent was away for 30.
    assert await after.look(CALM, seconds=220) == 0
    assert await after.look(CALM, seconds=10) == 10


async def test_a_step_of_the_way_back_and_the_grace_go_on() -> None:
    node = Node(Agrees())
    await node.look(LEAK, seconds=4)
    assert await node.look(CALM, seconds=370) == 25
    after = await restarted(node, Agrees(), 5.0)
    assert await after.look(CALM, seconds=3) == 25
    assert await after.look(CALM, seconds=62) == 50
    assert await after.look(CALM, seconds=125) == 100
    last = await restarted(after, Agrees(), 5.0)
    assert await last.look(HALF, seconds=60) == 100, "it has just been given back"
    assert await last.look(HALF, seconds=70) == 50


async def test_a_grant_that_is_refused_after_the_restart_leaves_half() -> None:
    node = Node(Agrees())
    await node.look(LEAK, seconds=4)
    after = await restarted(node, Agrees(Grant(granted=False, why="too many")), 5.0)
    assert await after.look(LEAK, seconds=30) == 50


@pytest.mark.parametrize(
    ("away", "engine", "mode"),
    [(700.0, "i1", "enforce"), (5.0, "i2", "enforce"), (5.0, "i1", "observe"), (-30.0, "i1", "enforce")],
)
async def test_what_is_old_or_of_another_life_or_not_enforced_is_not_taken_over(
    away: float, engine: str, mode: str
) -> None:
    node = Node(Agrees())
    await node.look(LEAK, seconds=4)
    after = await restarted(node, Agrees(), away, mode=mode)
    assert await after.look(signals(instance=engine), seconds=3) == 100


async def test_what_can_t_be_read_or_is_not_known_yet_is_nothing() -> None:
    node = Node(Agrees(), moves=Written(b"{"))
    assert await node.look(CALM) == 100
    unread = Node(Agrees(), moves=Written(None))
    assert await unread.look(CALM, seconds=2) == 100
    assert unread.moves.last == b"", "and is not overwritten"


async def test_nothing_is_written_while_all_is_well() -> None:
    node = Node(Agrees())
    await node.look(CALM, seconds=60)
    assert node.moves.last == b""
    await node.look(HALF, seconds=2)
    assert [each.engine for each in msgspec.json.decode(node.moves.last, type=KeptTracks).engines] == ["m"]


async def test_what_is_about_to_be_restarted_is_drained_by_a_grant_and_comes_back() -> None:
    coordinator = Agrees()
    node = Node(coordinator)
    await node.look(CALM, seconds=2)
    assert node.balancer.drain("m", "it is about to be restarted")
    assert await node.look(CALM) == 50
    assert await node.look(CALM) == 0
    assert node.balancer.drain_refused("m") == ""
    node.balancer.undrain("m")
    assert await node.look(CALM, seconds=2) == 100
    assert ("release", "m") in coordinator.heard


async def test_a_drain_that_the_fleet_does_not_allow_says_so() -> None:
    node = Node(Agrees(Grant(granted=False, why="too many")))
    node.balancer._config = node.balancer._config.model_copy(update={"coordinator": "webhook"})
    await node.look(CALM, seconds=2)
    assert node.balancer.drain("m", "why")
    assert await node.look(CALM, seconds=3) == 50
    assert node.balancer.drain_refused("m") == "too many"


async def test_without_a_coordinator_a_drain_is_half_and_no_refusal() -> None:
    node = Node(NoCoordinator())
    await node.look(CALM, seconds=2)
    assert node.balancer.drain("m", "why")
    assert await node.look(CALM, seconds=10) == 50
    assert node.balancer.drain_refused("m") == ""
    assert not Node(Agrees(), mode="observe").balancer.drain("m", "why")
