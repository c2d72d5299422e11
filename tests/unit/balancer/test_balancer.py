"""A node's balancer: modes, people, switches, restarts, stale states, and the grants that it asks for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from agent.actions.types import ActionsState, BreakerState, Refusal
from agent.balancer.coordinator import CoordinatorError, Grant, NoCoordinator
from agent.balancer.grants import Grants
from agent.policy.actions import ActionsPolicy
from agent.policy.types import Policy
from tests.unit.balancer.made import Agrees, Clock, Node, signals
from tests.unit.builders import make_engine

LEAK = signals(0.09, lasts=200.0)
HALF = signals(0.06)


async def test_enforced_it_halves_and_isolates_and_counts_in_the_fleet() -> None:
    coordinator = Agrees()
    node = Node(coordinator)
    assert await node.look(HALF, seconds=2) == 50
    assert await node.look(LEAK, seconds=4) == 0
    assert coordinator.heard[:2] == [("alive", ("m",)), ("grant", "m")]
    state = node.balancer.state
    assert (state.mode, state.coordinator, state.fleet, state.ejected) == ("enforce", "agrees", 10, 1)
    assert [(each.engine, each.told.mode) for each in state.engines] == [("m", "drain")]
    assert node.moves.moved == [("m", 50), ("m", 0)]


async def test_a_grant_is_renewed_while_it_is_needed_and_given_back() -> None:
    coordinator = Agrees()
    node = Node(coordinator)
    await node.look(LEAK, seconds=100)
    assert coordinator.heard.count(("grant", "m")) == 5, "each 20 s"
    assert ("release", "m") not in coordinator.heard
    assert node.balancer.state.fleet == 10
    await node.look(signals(), seconds=500)
    assert coordinator.heard.count(("release", "m")) == 1
    assert node.balancer.state.fleet is None
    assert await node.look(signals()) == 100


@pytest.mark.parametrize("mode", ["observe", "dry-run"])
async def test_what_is_not_enforced_is_not_told_and_asks_nobody(mode: str) -> None:
    coordinator = Agrees()
    node = Node(coordinator, mode=mode)
    assert await node.look(LEAK, seconds=30) == 100
    assert coordinator.heard == []
    (engine,) = node.balancer.state.engines
    assert engine.found.percent == (100 if mode == "observe" else 0)
    assert engine.told.why.startswith(mode)


async def test_without_a_coordinator_never_below_half() -> None:
    node = Node(NoCoordinator())
    assert await node.look(LEAK, seconds=600) == 50
    assert "there is no coordinator" in node.balancer.told("m").why
    assert node.balancer.state.refused_total > 0


async def test_a_coordinator_that_fails_grants_nothing_and_a_grant_lasts_to_its_end() -> None:
    coordinator = Agrees(CoordinatorError("no route"))
    node = Node(coordinator)
    assert await node.look(LEAK, seconds=30) == 50
    state = node.balancer.state
    assert (state.refused_total, state.failed_total, state.problem) == (6, 6, "no route")
    assert "can't be asked: no route" in node.balancer.told("m").why
    coordinator.answer = Grant(granted=True)
    assert await node.look(LEAK, seconds=6) == 0
    assert node.balancer.state.problem == ""
    coordinator.answer = CoordinatorError("no route")
    assert await node.look(LEAK, seconds=50) == 0
    assert await node.look(LEAK, seconds=20) == 50
    assert node.balancer.state.refused_total > 6


async def test_a_grant_that_is_taken_back_brings_half_back_at_once() -> None:
    coordinator = Agrees()
    node = Node(coordinator)
    assert await node.look(LEAK, seconds=10) == 0
    coordinator.answer = Grant(granted=False, why="3 of 9 are below 50 % already, 2 may be")
    assert await node.look(LEAK, seconds=22) == 50


async def test_a_restart_begins_anew() -> None:
    node = Node(Agrees())
    assert await node.look(LEAK, seconds=10) == 0
    assert await node.look(signals(settled=False, instance="i2")) == 100
    assert node.balancer.told("m").why == "it has just started"


@pytest.mark.parametrize(("mark", "percent", "mode"), [("maint", 0, "maint"), ("drain", 0, "drain"), ("up", 100, "up")])
async def test_a_person_wins(tmp_path: Path, mark: str, percent: int, mode: str) -> None:
    marks = tmp_path / "marks.yaml"
    coordinator = Agrees()
    node = Node(coordinator, marks_file=str(marks))
    assert await node.look(LEAK, seconds=10) == 0
    marks.write_text(f"m: {mark}\n")
    assert await node.look(LEAK, seconds=10) == percent
    told = node.balancer.told("m")
    assert (told.mode, told.step, told.why) == (mode, "person", f"a person holds it: {mark}")
    assert ("release", "m") in coordinator.heard, "what a person holds is not of our share"
    marks.unlink()
    assert await node.look(LEAK, seconds=100) == 100, "a time of grace, then it is judged again"
    assert await node.look(LEAK, seconds=30) == 0


async def test_a_person_wins_where_nothing_is_enforced_too(tmp_path: Path) -> None:
    marks = tmp_path / "marks.yaml"
    marks.write_text("m: maint\n")
    assert await Node(Agrees(), marks_file=str(marks), mode="observe").look(signals()) == 0


async def test_a_marks_file_that_is_wrong_is_told_and_what_was_before_stays(tmp_path: Path) -> None:
    marks = tmp_path / "marks.yaml"
    marks.write_text("m: maint\n")
    node = Node(Agrees(), marks_file=str(marks))
    assert await node.look(signals()) == 0
    marks.write_text("m: maintenance\n")
    assert await node.look(signals()) == 0
    assert node.balancer.state.problem == f"balancer.marks_file {marks}: 'm': 'maintenance': must be maint, drain, up"
    marks.write_text("{}\n")
    os.utime(marks, (1.0, 1.0))
    assert await node.look(signals()) == 100
    assert node.balancer.state.problem == ""


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        (ActionsState(breaker=BreakerState(open=True, reason="3 failures")), "the breaker is open: 3 failures"),
        (ActionsState(problem="the node's off switch"), "the node's off switch"),
    ],
)
async def test_an_open_breaker_or_an_off_switch_gives_all_back(actions: ActionsState, why: str) -> None:
    node = Node(Agrees())
    assert await node.look(LEAK, seconds=10, actions=ActionsState()) == 0
    assert await node.look(LEAK, actions=actions) == 100
    assert node.balancer.told("m").why == why


async def test_what_stops_one_engine_does_not_stop_another() -> None:
    node = Node(Agrees())
    other = signals(0.09, lasts=200.0, engine="o", instance="o1")
    await node.look(LEAK, other, seconds=10)
    node.stop = Refusal(code="vetoed", text="vetoed")
    assert await node.look(LEAK, other, seconds=10) == 100
    assert node.balancer.told("m").why == "vetoed"
    assert node.balancer.told("o").percent == 0


@pytest.mark.parametrize(
    ("mode", "actions", "percent"),
    [
        ("enforce", ActionsPolicy(), 0),
        ("enforce", ActionsPolicy(levers={"weight": "dry-run"}), 100),
        ("enforce", ActionsPolicy(engines={"m": {"weight": "observe"}}), 100),
        ("enforce", ActionsPolicy(levers={"weight": "observe"}, engines={"m": {"weight": "enforce"}}), 0),
        ("enforce", ActionsPolicy(levers={"trim": "observe"}, engines={"o": {"weight": "observe"}}), 0),
        ("dry-run", ActionsPolicy(mode="enforce", levers={"weight": "enforce"}), 100),
    ],
)
async def test_the_policy_weakens_the_mode_also_of_one_engine_and_at_once(
    mode: str, actions: ActionsPolicy, percent: int
) -> None:
    node = Node(Agrees(), mode=mode)
    node.balancer.policy = Policy(actions=actions)
    assert await node.look(LEAK, seconds=10) == percent
    node.balancer.policy = Policy(actions=ActionsPolicy(levers={"weight": "observe"}))
    assert await node.look(LEAK, seconds=2) == 100


async def test_an_agent_that_no_longer_looks_holds_nothing_for_long() -> None:
    node = Node(Agrees())
    assert await node.look(LEAK, seconds=10) == 0
    node.clock.now += 119.0
    assert node.balancer.told("m").percent == 0
    node.clock.now += 2.0
    assert node.balancer.told("m").percent == 100


async def test_an_engine_that_falls_silent_is_held_then_let_go_and_forgotten() -> None:
    node = Node(Agrees())
    assert await node.look(LEAK, seconds=10) == 0
    assert await node.look(seconds=110) == 0
    assert await node.look(seconds=20) == -1
    assert node.balancer.state.engines == ()


async def test_what_a_silent_engines_page_says_does_not_count() -> None:
    node = Node(Agrees())
    page = signals(0.0, hooked=False, instance="page")
    assert await node.look(LEAK, seconds=10) == 0
    silent = (make_engine(engine="m", instance="i1", phase="silent"),)
    assert await node.look(page, seconds=60, engines=silent) == 0


async def test_an_engine_of_the_settings_is_known_before_it_is_seen() -> None:
    node = Node(Agrees(), engines=({"name": "m", "listen": "127.0.0.1:0"},))
    assert node.balancer.told("m").percent == 100
    assert node.balancer.told("other") is None
    assert await node.look(seconds=5) == 100


async def test_the_end_gives_all_back() -> None:
    coordinator = Agrees()
    node = Node(coordinator)
    assert await node.look(LEAK, seconds=10) == 0
    node.balancer.let_go()
    assert await node.look(LEAK) == 100
    await node.balancer.close()
    assert coordinator.heard[-2:] == [("release", "m"), ("close", None)]


async def test_the_end_leaves_what_a_person_holds(tmp_path: Path) -> None:
    marks = tmp_path / "marks.yaml"
    marks.write_text("m: maint\n")
    node = Node(Agrees(), marks_file=str(marks))
    assert await node.look(signals(), seconds=2) == 0
    node.balancer.let_go()
    assert node.balancer.told("m").mode == "maint"


async def test_the_task_asks_by_itself() -> None:
    coordinator = Agrees()
    node = Node(coordinator)
    node.clock.now += 1.0
    node.once(node.state(LEAK), LEAK)
    node.balancer.start()
    for _ in range(3000):
        if coordinator.heard:
            break
        await asyncio.sleep(0.01)
    await node.balancer.close()
    assert coordinator.heard[0] == ("alive", ("m",))


async def test_what_is_given_back_does_not_count_while_the_coordinator_is_told() -> None:
    """Its answer may be late or lost, and the grant is another's by then."""

    class Late(Agrees):
        async def release(self, engine: str) -> None:
            await super().release(engine)
            held.append(grants.holds(engine))
            raise CoordinatorError("no answer")

    held: list[bool] = []
    coordinator, clock = Late(), Clock()
    grants = Grants(coordinator, clock=clock)
    grants.want(("m",), ("m",), {})
    await grants.once()
    assert grants.holds("m")
    grants.want(("m",), (), {})
    await grants.once()
    await grants.once()
    assert (held, grants.holds("m")) == ([False, False], False), "it is told again, and does not count"
    grants.want(("m",), ("m",), {})
    await grants.once()
    assert grants.holds("m"), "asked for at once, not when the former one was to be renewed"
    assert coordinator.heard.count(("grant", "m")) == 2
    grants.want(("m",), (), {})
    await grants.once()
    clock.now += 61.0
    await grants.once()
    told = coordinator.heard.count(("release", "m"))
    await grants.once()
    assert coordinator.heard.count(("release", "m")) == told, "it has ended there, too"
