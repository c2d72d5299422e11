"""Sleep as the agent does it: out of the load balancer first, idle, kept out while it lasts, and judged again after."""

from __future__ import annotations

from typing import Any

import pytest

from agent.actions.persons import OrderError, Persons
from agent.actions.types import Action
from agent.supervisor.drained import Drained
from agent.supervisor.sleep import Sleep
from engine_hooks.levers.orders import LeaseRow
from tests.unit.actions.conftest import MakeRig, make_rig
from tests.unit.actions.rig import Knob, Rig, policy

__all__ = ["make_rig"]


class Bed:
    """A rig whose engine has a lever ``sleep``, and a load balancer that notes who is out."""

    def __init__(self, rig: Rig, **engine: Any) -> None:
        self.rig, self.engine = rig, {"running": 0, "waiting": 0, **engine}
        self.out: set[str] = set()
        self.refused = ""
        drained = Drained(self, lambda: rig.state(**self.engine), drain_seconds=0.3, settle_seconds=0.0)
        self.sleep = Sleep(drained)
        rig.actions.executor._before = {"sleep": self.sleep}

    def drain(self, engine: str, why: str) -> bool:
        self.out.add(engine)
        return True

    def undrain(self, engine: str) -> None:
        self.out.discard(engine)

    def drain_refused(self, engine: str) -> str:
        return self.refused

    async def look(self, seconds: float = 1.0) -> None:
        await self.rig.seconds(seconds, **self.engine)
        self.sleep.look(self.rig.state(**self.engine), self.rig.actions.book.live())

    async def order(self, **arguments: Any) -> Action:
        done = await Persons(self.rig.actions).order("sleep", "m", {}, by="ann", **arguments)
        self.sleep.look(self.rig.state(**self.engine), self.rig.actions.book.live())
        return done


def levers() -> dict[str, Any]:
    return {"sleep": Knob("sleep", "")}


OPTED_IN = policy(mode="observe", opt_in=("sleep",))


async def test_it_is_out_of_the_load_balancer_from_before_it_sleeps_until_it_is_awake(make_rig: MakeRig) -> None:
    bed = Bed(await make_rig(OPTED_IN, levers=levers()))
    await bed.look()
    assert bed.out == set()
    action = await bed.order(minutes=1.0)
    knob = bed.rig.processes[0].levers["sleep"]
    assert (action.phase, knob.value, bed.out) == ("in_force", 1, {"m"})
    await bed.look(50)
    assert (knob.value, bed.out) == (1, {"m"})
    await bed.look(12)
    assert (bed.rig.done[0].reason, knob.value, bed.out) == ("its time is over", 0, set())


@pytest.mark.parametrize("counts", [{"running": 3}, {"waiting": 2}, {"running": None}])
async def test_never_with_requests(make_rig: MakeRig, counts: dict[str, int | None]) -> None:
    bed = Bed(await make_rig(OPTED_IN, levers=levers()), **counts)
    await bed.look()
    action = await bed.order()
    assert action.phase == "refused"
    assert action.reason.endswith("an engine with requests is not put to sleep")
    assert (bed.rig.processes[0].levers["sleep"].calls, bed.out) == ({}, set())


async def test_the_fleet_may_say_no(make_rig: MakeRig) -> None:
    bed = Bed(await make_rig(OPTED_IN, levers=levers()))
    bed.refused = "3 of 10 are below 50 % already"
    await bed.look()
    action = await bed.order()
    assert (action.phase, bed.out) == ("refused", set())
    assert "3 of 10" in action.reason


async def test_a_word_of_its_own_is_needed_from_a_person_too(make_rig: MakeRig) -> None:
    bed = Bed(await make_rig(policy(mode="enforce"), levers=levers()))
    await bed.look()
    with pytest.raises(OrderError, match=r"sleep needs a word of its own: actions\.opt_in"):
        await bed.order()
    assert bed.rig.processes[0].levers["sleep"].calls == {}


async def test_where_the_engine_can_not_its_reason_is_told(make_rig: MakeRig) -> None:
    bed = Bed(await make_rig(OPTED_IN, levers=levers(), allowed=()))
    await bed.look()
    with pytest.raises(OrderError, match="KVTIDE_LEVERS in the engine's environment does not list sleep"):
        await bed.order()


async def test_an_engine_that_says_it_sleeps_is_out_whoever_has_ordered_it(make_rig: MakeRig) -> None:
    bed = Bed(await make_rig(OPTED_IN, levers=levers()))
    row = LeaseRow(action="of-before", lever="sleep", left_seconds=20.0, arguments={})
    bed.sleep.look(bed.rig.state(in_force=(row,)), ())
    assert bed.out == {"m"}
    bed.sleep.look(bed.rig.state(in_force=()), ())  # its lease ran out: it is awake
    assert bed.out == set()


async def test_an_agent_that_ends_leaves_it_asleep_for_its_lease(make_rig: MakeRig) -> None:
    bed = Bed(await make_rig(OPTED_IN, levers=levers()))
    await bed.look()
    await bed.order()
    await bed.rig.restart()
    bed.out.clear()
    await bed.look()
    knob = bed.rig.processes[0].levers["sleep"]
    assert (knob.value, bed.out) == (1, {"m"}), "the next agent has taken it over"
    bed.rig.processes[0].link.close()
    bed.rig.clock.now += 31.0
    bed.rig.processes[0].desk.tick()
    assert knob.value == 0, "nobody renewed it"
