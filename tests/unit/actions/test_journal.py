"""The journal: nothing is done without it, it is bounded, and a damaged one is told and left alone."""

from __future__ import annotations

import resource
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from agent.actions.errors import JournalError
from agent.actions.executor import new_action
from agent.actions.journal import CACHE_KIB, FILE, RECENT_ORDERED, RECENT_OWN, Journal
from agent.actions.journal_file import Refused, look_up, tidy
from agent.actions.persons import OrderError, Persons
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import short
from tests.unit.actions.test_safety import NOW, plan


@contextmanager
def no_room(size: int = 0) -> Iterator[None]:
    """No file of this process may grow beyond ``size``: as good as a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_stops_acting_and_not_observing(make_rig: MakeRig) -> None:
    rig = await make_rig()
    with no_room():
        await rig.seconds(5, short())
        assert not rig.sent
        assert not rig.done
        assert rig.actions.state().problem
        assert rig.refusals()["journal"] >= 1
    await rig.seconds(12, short())  # there is room again
    assert rig.actions.state().problem == ""
    assert [each.phase for each in rig.done] == ["in_force"]


async def test_what_is_in_force_is_kept_and_taken_back_without_a_journal(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    rig.held = 300
    with no_room():
        await rig.seconds(100, short(tier="note"))
        assert rig.processes[0].levers["watermark"].value == 50
        await rig.seconds(60)
        assert rig.processes[0].levers["watermark"].value == 0
    await rig.seconds(12)
    (kept,), _, _ = look_up(rig.folder / "state" / FILE, 10)
    assert kept.phase == "in_force"  # of before; the next agent finds that the engine has it no longer


async def test_a_damaged_journal_stops_acting_until_it_is_moved_away(make_rig: MakeRig, tmp_path: Path) -> None:
    file = tmp_path / "state" / FILE
    file.parent.mkdir()
    file.write_bytes(b"no database at all, whatever its name says" * 200)
    rig = await make_rig()
    await rig.seconds(5, short())
    assert not rig.sent
    assert "move it away" in rig.actions.state().problem
    assert file.read_bytes().startswith(b"no database")
    file.rename(tmp_path / "away")
    await rig.seconds(15, short())
    assert rig.actions.state().problem == ""
    assert len(rig.done) == 1


async def test_a_journal_of_a_newer_kvtide_is_not_touched(make_rig: MakeRig, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with sqlite3.connect(tmp_path / "state" / FILE) as db:
        db.execute("PRAGMA user_version = 99")
    rig = await make_rig()
    await rig.seconds(3, short())
    assert not rig.sent
    assert "newer kvtide" in rig.actions.state().problem


async def test_one_that_is_removed_is_made_anew(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    for each in (rig.folder / "state").iterdir():
        each.unlink()
    rig.held = 900
    await rig.seconds(75, short())
    assert (rig.folder / "state" / FILE).exists()
    assert rig.actions.state().problem == ""


def test_two_agents_do_not_act_by_one_journal(tmp_path: Path) -> None:
    first, second = Journal(tmp_path), Journal(tmp_path)
    first.put(new_action(plan(), "enforce", NOW, None))
    with pytest.raises(JournalError, match="another agent"):
        second.put(new_action(plan(), "enforce", NOW, None))
    first.close()
    second.put(new_action(plan(), "enforce", NOW, None))
    second.close()


def test_little_of_the_file_is_kept_in_memory(tmp_path: Path) -> None:
    """SQLite would fill 2 MB with pages that nobody reads again, in an agent that has 80 MiB."""
    journal = Journal(tmp_path)
    journal.keep("a", b"1")
    assert journal._db is not None
    assert journal._db.execute("PRAGMA cache_size").fetchone() == (-CACHE_KIB,)
    journal.close()


def test_it_is_bounded_and_keeps_what_has_not_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    live = new_action(plan(), "enforce", NOW - 1e6, None)
    journal.put(live)
    for number in range(50):
        journal.put(replace(new_action(plan(), "enforce", NOW + number, None), phase="undone"))
        journal.refuse(Refused(at=NOW + number, lever="trim", engine="m", kind="k", code="budget", text="t"))
    journal.close()
    db = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    try:
        tidy(db, keep_seconds=1e5, rows=10)
        asked = ("SELECT count(*) FROM actions", "SELECT count(*) FROM refusals", "SELECT count(*) FROM steps")
        counts = [db.execute(each).fetchone()[0] for each in asked]
        assert counts == [11, 10, 10]
        assert db.execute("SELECT count(*) FROM actions WHERE id = ?", (live.id,)).fetchone() == (1,)
        tidy(db, keep_seconds=40.0, rows=1000, size=1)
        assert db.execute("SELECT count(*) FROM actions").fetchone()[0] <= 7
    finally:
        db.close()


def test_what_was_kept_is_read_again_with_its_steps(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    action = new_action(plan(), "enforce", NOW, 0.9)
    journal.put(action)
    journal.put(replace(action, phase="in_force", reason="done"))
    journal.keep("breaker", b"{}")
    kept = journal.read()
    assert kept.actions == (replace(action, phase="in_force", reason="done"),)
    assert kept.facts == {"breaker": b"{}"}
    actions, steps, _ = look_up(tmp_path / FILE, 5, action.id)
    assert actions == kept.actions
    assert [each.phase for each in steps] == ["intent", "in_force"]
    journal.close()
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_a_journal_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"actions\.db: there is none; it begins with the first action"):
        look_up(tmp_path / FILE, 5)
    (tmp_path / FILE).mkdir()
    with pytest.raises(JournalError, match=r"unable to open database file|disk I/O error"):
        look_up(tmp_path / FILE, 5)


def test_what_persons_order_does_not_push_out_what_the_agent_did(tmp_path: Path) -> None:
    """By what it did the next agent keeps its budget."""
    journal = Journal(tmp_path)
    own = replace(new_action(plan(), "enforce", NOW, None), phase="done")
    journal.put(own)
    orders = [
        replace(new_action(plan(), "enforce", NOW + 1 + number, None, by="ann"), phase="undone")
        for number in range(RECENT_OWN + 1)
    ]
    for each in orders:
        journal.put(each)
    assert journal.read().actions == (*reversed(orders[-RECENT_ORDERED:]), own)
    journal.close()


async def test_what_is_said_while_the_disk_is_full_outlives_the_agent(make_rig: MakeRig) -> None:
    rig = await make_rig()
    persons = Persons(rig.actions)
    with no_room():
        persons.switch(on=False, by="ann")
        persons.mark("m", "drain", by="ann")
        rig.actions.book.open_breaker("three in a row")
        await rig.look()
        assert rig.actions.journal.problem
    persons.veto("trim", "*", 60.0, by="ann")
    await rig.look()
    assert rig.actions.journal.problem == "", "this one is written; the others are not yet"
    await rig.seconds(12)
    await rig.restart()
    assert rig.actions.off == "switched off by ann"
    assert (rig.actions.book.breaker.open, len(rig.actions.vetoes)) == (True, 1)
    mark = rig.actions.mark_of("m")
    assert mark is not None
    assert mark.by == "ann"


async def test_what_is_said_before_the_journal_is_read_stands_beside_what_is_in_it(make_rig: MakeRig) -> None:
    """Another agent has it still, as in a roll-out."""
    rig = await make_rig()
    Persons(rig.actions).mark("a", "drain", by="ann")
    Persons(rig.actions).mark("c", "drain", by="ann")
    Persons(rig.actions).veto("trim", "*", 60.0, by="ann")
    await rig.look()
    await rig.actions.close()
    rig.server.close()
    rig._begin()
    before = Journal(rig.folder / "state")
    before.read()
    await rig.start()
    assert not rig.actions.opened
    persons = Persons(rig.actions)
    persons.mark("b", "maint", by="bob")
    persons.veto("preempt", "*", 60.0, by="bob")
    persons.switch(on=False, by="bob")
    with pytest.raises(OrderError, match=r"who holds a is not known yet: .*another agent acts by it; try again"):
        persons.unmark("a")
    persons.mark("c", "maint", by="bob")
    persons.unmark("c")
    await rig.look()
    before.close()
    await rig.seconds(12)
    for _ in range(2):
        assert {each.engine for each in rig.actions.book.marks} == {"a", "b"}
        assert {each.lever for each in rig.actions.book.vetoes} == {"trim", "preempt"}
        assert rig.actions.off == "switched off by bob"
        await rig.look()
        await rig.restart()
