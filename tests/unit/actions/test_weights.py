"""Weights in the journal: the intent before load balancers are told, the outcome after, refusals with their reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.actions.journal import FILE
from agent.actions.journal_file import look_up
from agent.actions.persons import OrderError, Persons, UnknownError
from agent.actions.types import Refusal
from agent.actions.weights import WeightMoves
from agent.balancer.moves import Move
from agent.balancer.state import Weight
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rig, policy, short
from tests.unit.support import eventually_async

FULL = Weight(since=0.0)
HALF = Weight(percent=50, since=1.0, why="unexplained growth is 6 %", step="halved")


async def moved(rig: Rig, move: Move, *, wanted: bool = True) -> list[tuple[bool, list[str]]]:
    """Run a move; return what the balancer was asked, with what the journal had at that moment."""
    asked: list[tuple[bool, list[str]]] = []

    def decide(written: bool) -> bool:
        journal = rig.folder / "state" / FILE
        asked.append((written, [each.phase for each in look_up(journal, 9)[0]] if journal.is_file() else []))
        return wanted and (written or not move.takes)

    WeightMoves(rig.actions).begin(move, decide)
    await eventually_async(rig.actions.tasks.idle)
    await rig.look()
    return asked


async def test_the_intent_is_on_the_disk_before_it_is_told(make_rig: MakeRig) -> None:
    rig = await make_rig()
    assert await moved(rig, Move(engine="m", before=FULL, now=HALF)) == [(True, ["intent"])]
    (action,) = rig.done
    assert (action.plan.lever, action.phase, action.by, action.plan.kind) == (
        "weight",
        "done",
        "agent",
        "unexplained_growth",
    )
    assert action.plan.arguments == {"percent": 50, "mode": "up"}
    assert action.plan.sentence == "unexplained growth is 6 %"
    assert look_up(rig.folder / "state" / FILE, 9)[0][0].phase == "done"


async def test_a_journal_that_can_t_be_written_refuses_it(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.look()
    (rig.folder / "state" / FILE).unlink(missing_ok=True)
    (rig.folder / "state" / FILE).mkdir(parents=True)
    assert await moved(rig, Move(engine="m", before=FULL, now=HALF)) == [(False, [])]
    assert rig.refusals() == {"journal": 1}
    assert await moved(rig, Move(engine="m", before=HALF, now=FULL)) == [(False, [])]
    assert rig.refusals() == {"journal": 1}, "what is given back is told all the same"


async def test_one_that_is_not_wanted_any_more_is_refused(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await moved(rig, Move(engine="m", before=FULL, now=HALF), wanted=False)
    assert [(each.phase, each.reason) for each in rig.done] == [("refused", "something else was wanted meanwhile")]


async def test_a_person_s_move_has_their_name(make_rig: MakeRig) -> None:
    rig = await make_rig()
    held = Weight(percent=0, mode="drain", since=1.0, why="ann holds it: drain", step="person")
    await moved(rig, Move(engine="m", before=FULL, now=held, by="ann"))
    assert [(each.by, each.plan.kind) for each in rig.done] == [("ann", "person")]


async def test_weights_do_not_use_up_the_budget_nor_hold_up_levers(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(budget_per_hour=3))
    for _ in range(5):
        await moved(rig, Move(engine="m", before=FULL, now=HALF))
    await rig.seconds(1, short())
    assert rig.actions.state().budget_left == 2
    assert rig.done[-1].plan.lever == "watermark"


async def test_each_refusal_is_counted_once_while_its_reason_stays(make_rig: MakeRig) -> None:
    rig = await make_rig()
    moves = WeightMoves(rig.actions)
    for code in ("share", "share", "observe", "share"):
        moves.refuse("m", Refusal(code=code, text="why"))
        await rig.look(short())
    moves.refuse("m", None)
    moves.refuse("m", Refusal(code="share", text="why"))
    await rig.look()
    refused = look_up(rig.folder / "state" / FILE, 9)[2]
    assert [each.code for each in refused if each.lever == "weight"] == ["share", "share", "observe", "share"]


async def test_what_stops_a_lever_stops_weights(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.look()
    moves, persons = WeightMoves(rig.actions), Persons(rig.actions)
    assert moves.stops("m") is None
    persons.veto("weight", "m", 5.0, by="ann")
    assert moves.stops("m") == Refusal(code="vetoed", text="vetoed by ann")
    assert moves.stops("o") is None
    persons.mark("o", "rollout", by="bob", why="new image")
    assert moves.stops("o") == Refusal(code="yield", text="held by bob: rollout (new image)")
    persons.switch(on=False, by="ann")
    stopped = moves.stops("o")
    assert stopped is not None
    assert stopped.code == "switched_off"


async def test_marks_hold_end_and_outlive_the_agent(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.look()
    persons = Persons(rig.actions)
    persons.mark("m", "drain", by="ann", minutes=2.0, why="INC-1")
    persons.mark("new", "maint", by="ann")
    await rig.seconds(2, short())
    assert rig.refusals() == {"yield": 1}, "whoever drains it is not disturbed"
    await rig.restart()
    moves, persons = WeightMoves(rig.actions), Persons(rig.actions)
    assert [(each.engine, each.mark) for each in persons.marks()] == [("m", "drain"), ("new", "maint")]
    found = moves.marked("m")
    assert found is not None
    assert (found.mark, found.by, found.why) == ("drain", "ann", "INC-1")
    await rig.seconds(120)
    assert moves.marked("m") is None
    persons.unmark("new")
    assert persons.marks() == ()
    with pytest.raises(UnknownError, match="nobody holds it"):
        persons.unmark("new")


async def test_a_roll_out_is_no_mark_at_the_load_balancer(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.look()
    Persons(rig.actions).mark("m", "rollout", by="ann")
    assert WeightMoves(rig.actions).marked("m") is None
    await rig.seconds(2, short())
    assert rig.refusals() == {"yield": 1}


@pytest.mark.parametrize(
    ("engine", "mark", "minutes", "why"),
    [("m", "down", None, "must be one of drain"), ("", "drain", None, "1 to 128"), ("m", "up", 0.0, "must be above 0")],
)
async def test_what_is_no_mark_is_refused(
    make_rig: MakeRig, engine: str, mark: str, minutes: float | None, why: str
) -> None:
    rig = await make_rig()
    with pytest.raises(OrderError, match=why):
        Persons(rig.actions).mark(engine, mark, by="ann", minutes=minutes)


async def test_what_the_balancer_keeps_outlives_the_agent(make_rig: MakeRig, tmp_path: Path) -> None:
    rig = await make_rig()
    moves = WeightMoves(rig.actions)
    assert moves.kept() == b""
    moves.keep(b"what is to be known")
    await rig.restart()
    assert WeightMoves(rig.actions).kept() == b"what is to be known"
