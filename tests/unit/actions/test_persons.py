"""What persons order, over the control socket's own app."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from agent.actions.persons import OrderError, Persons, UnknownError, WrongError
from agent.control.app import build_control
from agent.faces.actions import block, stops
from agent.top.action_lines import standing_of
from exporters.http import KNOWN, build_app
from tests.unit.actions.conftest import MakeRig
from tests.unit.actions.rig import Rules, policy, short
from tests.unit.builders import make_state


async def test_a_tenants_concurrency_is_lowered_now(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"), levers={})
    front = await rig.add(instance="f1", role="frontend", levers={"admission": Rules("admission", "")})
    await rig.look()
    action = await Persons(rig.actions).order("admission", "m", {"concurrency": {"acme": 2}}, by="ann", minutes=1)
    assert (action.phase, action.by, action.plan.kind) == ("in_force", "ann", "person")
    assert front.desk.in_force()[0].arguments == {"concurrency": {"acme": 2}}
    await rig.seconds(59)
    assert front.desk.in_force()
    await rig.seconds(2)
    assert not front.desk.in_force()
    assert rig.done[0].reason == "its time is over"


async def test_an_order_changes_what_is_in_force(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    changed = await Persons(rig.actions).order("watermark", "m", {"blocks": 120}, by="ann")
    assert changed.phase == "done"
    assert rig.processes[0].levers["watermark"].value == 120
    assert rig.done[0].plan.arguments == {"blocks": 120}
    with pytest.raises(OrderError, match=f"is not in force: done; what it has changed is: action {rig.done[0].id}"):
        await Persons(rig.actions).undo(changed.id, by="ann")
    await Persons(rig.actions).undo(rig.done[0].id, by="ann")
    with pytest.raises(OrderError, match=r"is not in force: done$"):
        await Persons(rig.actions).undo(changed.id, by="ann")


async def test_what_a_person_changes_is_the_persons(make_rig: MakeRig) -> None:
    """The agent neither loosens it when it is calm nor takes it back."""
    rig = await make_rig(policy(calm_seconds=5.0, undo_step_seconds=1.0))
    await rig.seconds(1, short())
    await Persons(rig.actions).order("watermark", "m", {"blocks": 120}, by="ann", minutes=1)
    assert rig.done[0].by == "ann"
    await rig.seconds(50)
    assert rig.processes[0].levers["watermark"].value == 120
    await rig.seconds(15)
    assert rig.done[0].reason == "its time is over"


async def test_a_change_says_anew_for_how_long(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"))
    await rig.look()
    persons = Persons(rig.actions)
    base = await persons.order("watermark", "m", {"blocks": 9}, by="ann")
    changed = await persons.order("watermark", "m", {"blocks": 12}, by="bob", minutes=1)
    kept = rig.actions.book.actions[base.id]
    assert (kept.until, kept.plan.undo) == (changed.until, "kvtide actions undo, or by itself after 1 min")
    await rig.seconds(62)
    assert rig.actions.book.actions[base.id].reason == "its time is over"
    assert rig.processes[0].levers["watermark"].value == 0


async def test_orders_do_not_push_out_what_the_agent_has_done_itself(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own it keeps its budget and its cooldowns: a script that gives orders must not make it forget them."""
    monkeypatch.setattr("agent.actions.book.MOST_ORDERED", 3)
    rig = await make_rig()
    await rig.seconds(1, short())
    persons = Persons(rig.actions)
    own = rig.done[0].id
    await persons.undo(own, by="ann")
    for blocks in range(1, 8):
        action = await persons.order("watermark", "m", {"blocks": blocks}, by="ann")
        await persons.undo(action.id, by="ann")
    assert [each.by for each in rig.done] == ["agent", "ann", "ann", "ann"]
    assert rig.done[0].id == own


async def test_attempts_change_nothing(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.look()
    action = await Persons(rig.actions).order("watermark", "m", {"blocks": 9}, by="ann", attempt=True)
    assert action.phase == "would"
    assert {order.op for order in rig.sent} == {"try"}


async def test_an_attempt_asks_an_engine_that_does_not_allow_it_and_an_order_does_not(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"), allowed=())
    await rig.look()
    persons = Persons(rig.actions)
    tried = await persons.order("watermark", "m", {"blocks": 9}, by="ann", attempt=True)
    assert (tried.phase, "KVTIDE_LEVERS" in tried.reason) == ("would", True)
    with pytest.raises(OrderError, match=r"unsupported: .*KVTIDE_LEVERS"):
        await persons.order("watermark", "m", {"blocks": 9}, by="ann")


async def test_an_attempt_is_answered_by_the_engine_also_while_the_lever_is_in_force(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"))
    rig.processes[0].levers["watermark"].REPLACES = True
    await rig.look()
    persons = Persons(rig.actions)
    base = await persons.order("watermark", "m", {"blocks": 9}, by="ann")
    tried = await persons.order("watermark", "m", {"blocks": 12}, by="ann", attempt=True)
    assert (tried.phase, tried.outcomes[0].effect["after"]) == ("would", 12)
    assert rig.processes[0].levers["watermark"].value == 9
    assert rig.actions.book.actions[base.id].phase == "in_force"


async def test_undo_is_at_once(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    persons = Persons(rig.actions)
    done = await persons.undo(rig.done[0].id, by="ann")
    assert (done.phase, done.reason) == ("undone", "undone by ann")
    assert rig.processes[0].levers["watermark"].value == 0
    with pytest.raises(OrderError, match="is not in force: undone"):
        await persons.undo(done.id, by="ann")
    with pytest.raises(UnknownError):
        await persons.undo("nothing", by="ann")


async def test_a_veto_takes_back_and_keeps_from_it_for_its_time(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    Persons(rig.actions).veto("watermark", "m", 50.0, by="ann")
    await rig.seconds(2, short())
    assert rig.done[0].reason == "vetoed by ann"
    await rig.seconds(60, short())  # its own cooldown
    assert [each.plan.lever for each in rig.done] == ["watermark", "active_cap"]
    assert rig.refusals()["vetoed"] == 1


async def test_off_takes_back_everything_and_on_lets_it_go_on(make_rig: MakeRig) -> None:
    rig = await make_rig()
    persons = Persons(rig.actions)
    await rig.seconds(1, short())
    persons.switch(on=False, by="ann")
    await rig.seconds(70, short())
    assert [each.phase for each in rig.done] == ["undone"]
    assert (rig.actions.state().problem, rig.actions.state().off) == ("switched off by ann", "switched off by ann")
    with pytest.raises(OrderError, match="switched_off"):
        await persons.order("watermark", "m", {"blocks": 9}, by="bob")
    persons.switch(on=True, by="ann")
    await rig.seconds(1, short())
    assert len(rig.done) == 2
    assert rig.actions.state().off == ""


async def test_off_is_said_where_nothing_but_orders_would_be_done(make_rig: MakeRig) -> None:
    rig = await make_rig(policy(mode="observe"))
    await rig.look()
    Persons(rig.actions).switch(on=False, by="ann", why="INC-1")
    state = rig.actions.state()
    assert (state.problem, state.off) == ("", "switched off by ann: INC-1")
    (line,) = stops(state)
    assert line == "Persons' orders are refused, too: switched off by ann: INC-1"
    assert block(make_state(actions=state)) is not None
    shown = ["".join(text for text, _ in each) for each in standing_of(state, 80)]
    assert shown[-1].strip() == line


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"lever": "weight"}, "must be one of"),
        ({"lever": "bogus"}, "must be one of"),
        ({"engine": "x"}, "there is no such engine here; there are: m"),
        ({"minutes": 0}, "minutes: 0"),
        ({"minutes": 1e9}, "minutes"),
        ({"lever": "trim"}, "unsupported: no process of m has the lever trim"),
    ],
)
async def test_mistakes_are_told(make_rig: MakeRig, changes: dict[str, Any], told: str) -> None:
    rig = await make_rig()
    await rig.look()
    values: dict[str, Any] = {"lever": "watermark", "engine": "m", "minutes": None}
    wanted = values | changes
    with pytest.raises(OrderError, match=told):
        await Persons(rig.actions, first_seconds=0.0).order(
            wanted["lever"], wanted["engine"], {"blocks": 9}, by="ann", minutes=wanted["minutes"]
        )
    assert not rig.sent


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"blocks": 2**70}, "more than 64 bits"),
        ({"quotas": {"acme": -(2**70)}}, "more than 64 bits"),
        ({"quotas": {f"tenant-{number}": 2**60 for number in range(1024)}}, "16,384 at most"),
        ({"quotas": {f"tenant-{number}": 1 for number in range(1025)}}, "length"),
        ({f"a{number}": 1 for number in range(65)}, "length"),
    ],
)
async def test_what_can_not_be_sent_is_refused_and_nothing_is_begun(
    make_rig: MakeRig, arguments: dict[str, Any], told: str
) -> None:
    rig = await make_rig()
    await rig.look()
    with pytest.raises(OrderError, match=told):
        await Persons(rig.actions).order("watermark", "m", arguments, by="ann")
    assert (rig.done, rig.sent, rig.actions.book.breaker.open) == ([], [], False)


async def test_a_fault_of_our_own_leaves_nothing_half_done(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = await make_rig()
    await rig.look()
    persons = Persons(rig.actions)
    with monkeypatch.context() as broken:
        broken.setattr(rig.server, "act", lambda _order: 1 // 0)
        with pytest.raises(OrderError):
            await persons.order("watermark", "m", {"blocks": 9}, by="ann")
    assert [(each.phase, each.reason) for each in rig.done] == [
        ("failed", "a fault of kvtide's own, see the log; what the engine has of it ends by its lease")
    ]
    assert rig.actions.book.breaker.open
    assert (await persons.order("watermark", "m", {"blocks": 9}, by="ann")).phase == "in_force", (
        "it is not busy for ever"
    )


async def test_an_order_of_the_first_second_waits_for_its_engine(make_rig: MakeRig) -> None:
    rig = await make_rig()
    persons = Persons(rig.actions, first_seconds=60.0)
    order = asyncio.create_task(persons.order("watermark", "m", {"blocks": 9}, by="ann"))
    for _ in range(3):
        await asyncio.sleep(0.02)
    assert not order.done(), "the agent has not looked yet"
    rig.actions.take(rig.state(phase="silent"))
    await asyncio.sleep(0.2)
    assert not order.done(), "it is connected, and has not reported"
    rig.actions.take(rig.state())
    assert (await order).phase == "in_force"


async def test_an_order_of_the_first_second_waits_for_the_process_that_has_the_lever(make_rig: MakeRig) -> None:
    rig = await make_rig(levers={})
    order = asyncio.create_task(
        Persons(rig.actions, first_seconds=60.0).order("admission", "m", {"shed": True}, by="ann")
    )
    rig.actions.take(rig.state())
    await asyncio.sleep(0.2)
    assert not order.done(), "the engine's core is here, its API server is not"
    await rig.add(instance="f1", role="frontend", levers={"admission": Rules("admission", "")})
    rig.actions.take(rig.state())
    found = await order
    assert (found.phase, found.plan.targets) == ("in_force", ("f1",))


async def test_an_order_for_an_engine_of_this_very_second_waits_for_the_next_look(make_rig: MakeRig) -> None:
    rig = await make_rig()
    persons = Persons(rig.actions, first_seconds=0.0)
    empty = replace(rig.state(), engines=())
    rig.actions.take(empty)
    order = asyncio.create_task(persons.order("watermark", "m", {"blocks": 9}, by="ann"))
    await asyncio.sleep(0.2)
    assert not order.done(), "it may have connected since"
    rig.actions.take(rig.state())
    assert (await order).phase == "in_force"
    unknown = asyncio.create_task(persons.order("watermark", "x", {"blocks": 9}, by="ann"))
    await asyncio.sleep(0.0)
    rig.actions.take(rig.state())
    with pytest.raises(UnknownError, match="no such engine here; there are: m"):
        await unknown


async def test_the_switch_in_files(make_rig: MakeRig) -> None:
    rig = await make_rig()
    state = rig.folder / "state"
    state.mkdir(exist_ok=True)
    (state / "actions.off").write_text("upgrade of the racks\n")
    await rig.seconds(1, short())
    assert "upgrade of the racks" in rig.actions.off
    (state / "actions.off").unlink()
    fleet = rig.folder / "fleet"
    rig.policy = rig.actions.policy = policy(off_switch_file=str(fleet))
    fleet.write_text("off\n")
    await rig.seconds(1, short())
    assert "the fleet's off switch" in rig.actions.off
    fleet.write_text("on\n")
    (state / "yield").mkdir()
    (state / "yield" / "m").write_text("rolled out by ann")
    await rig.seconds(1, short())
    assert not rig.done
    assert rig.refusals() == {"switched_off": 1, "yield": 1}
    (state / "yield" / "m").unlink()
    await rig.seconds(1, short())
    assert len(rig.done) == 1


NAMED = {"lever": "trim", "engine": "x", "why": "x" * 1000}


async def test_the_control_app(make_rig: MakeRig) -> None:
    rig = await make_rig()
    await rig.seconds(1, short())
    reloads = iter(["", "/x: actions.mode: 'a'"])

    async def reload() -> str:
        return next(reloads)

    app = TestClient(build_control(Persons(rig.actions, first_seconds=0.0), reload, build_app(make_state)))

    def ask() -> None:
        assert app.get("/-/healthy").text == "healthy\n"
        assert app.post("/-/reload").json() == {"reloaded": True}
        refused = app.post("/-/reload")
        assert (refused.status_code, refused.json()["error"]) == (
            409,
            "the policy stays as it was: /x: actions.mode: 'a'",
        )
        assert app.post("/api/v1/veto", json={"lever": "trim", "minutes": 3}).json()["engine"] == "*"
        assert app.post("/api/v1/breaker/close").json() == {"was_open": False}
        assert app.post("/api/v1/off", json={"why": "x"}).json() == {"on": False}
        assert app.post("/api/v1/on").json() == {"on": True}
        for body in ({"lever": "trim", "bogus": 1}, {}, [], {"lever": 3}, {**NAMED, "why": "x" * 1001}):
            assert app.post("/api/v1/orders", json=body).status_code == 400
        assert app.post("/api/v1/orders", json=NAMED).status_code == 404
        assert app.post("/api/v1/actions/none/undo").status_code == 404
        assert app.post("/api/v1/veto", json={"lever": "bogus"}).status_code == 400
        assert app.get("/api/v1/veto").status_code in (404, 405)

    await asyncio.to_thread(ask)


async def test_who_goes_away_amid_an_order_is_no_fault_of_ours(make_rig: MakeRig) -> None:
    rig = await make_rig()
    app = build_control(Persons(rig.actions), _taken, build_app(make_state))
    heard = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(heard)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/api/v1/orders", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    assert sent[0]["status"] == 400
    assert not rig.sent


def test_the_tcp_side_writes_nothing() -> None:
    app = TestClient(build_app(make_state))
    for path in ("/api/v1/orders", "/api/v1/off", "/api/v1/breaker/close", "/api/v1/veto"):
        assert app.post(path).status_code == 404
    assert app.post("/-/reload").status_code == 403


async def _taken() -> str:
    return ""


def test_reload_over_tcp_is_for_programs_and_only_where_it_is_allowed() -> None:
    here = build_app(make_state, reload=_taken)

    async def known(scope: Any, receive: Any, send: Any) -> None:
        await here({**scope, KNOWN: True}, receive, send)

    assert TestClient(here).post("/-/reload").status_code == 403, "not for anybody"
    app = TestClient(known)
    assert app.post("/-/reload").text == "reloaded\n"
    assert app.post("/-/reload", headers={"Origin": "http://evil.example"}).status_code == 403
    assert app.get("/-/reload").status_code == 405


@pytest.mark.parametrize("engine", ["", "x" * 129, "a\0b", "a\nb", "\u202em"])
async def test_nobody_holds_what_cannot_be_typed_again(make_rig: MakeRig, engine: str) -> None:
    persons = Persons((await make_rig()).actions)
    with pytest.raises(WrongError, match=r"^engine: .*: must have 1 to 128 characters that can be shown$"):
        persons.mark(engine, "drain", by="ann")
    assert persons.marks() == ()


async def test_an_order_that_waited_for_its_engine_waits_for_what_was_begun_meanwhile(make_rig: MakeRig) -> None:
    """Two changes of one action at once would take each other's answers."""
    rig = await make_rig(policy(mode="observe"))
    await rig.look()
    persons = Persons(rig.actions, first_seconds=0.0)
    await persons.order("watermark", "m", {"blocks": 9}, by="ann")
    rig.actions.take(rig.state(phase="silent"))
    order = asyncio.create_task(persons.order("watermark", "m", {"blocks": 12}, by="bob"))
    await asyncio.sleep(0)
    ended = asyncio.Event()
    work = rig.actions.tasks.begin("m", ended.wait())
    rig.actions.take(rig.state())
    await asyncio.sleep(0.3)
    assert "amend" not in {each.op for each in rig.sent}
    ended.set()
    assert (await order).phase == "done"
    assert await work
    assert rig.processes[0].levers["watermark"].value == 12


async def test_a_mark_says_which_engines_there_are(make_rig: MakeRig) -> None:
    """In one answer: who asked again might find the agent gone, though the mark is made."""
    rig = await make_rig()
    await rig.look()
    app = TestClient(build_control(Persons(rig.actions), _taken, build_app(make_state)))

    def ask() -> None:
        answer = app.post("/api/v1/marks", json={"engine": "lama", "mark": "drain"}).json()
        assert (answer["engine"], answer["mark"], answer["engines"]) == ("lama", "drain", ["m"])
        assert "engines" not in app.get("/api/v1/marks").json()[0]

    await asyncio.to_thread(ask)


async def test_what_one_person_said_is_not_pushed_out_by_what_another_says(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was told that it is so must not find it undone."""
    for module in ("agent.actions.persons", "agent.actions.book"):
        monkeypatch.setattr(f"{module}.MOST_VETOES", 2)
        monkeypatch.setattr(f"{module}.MOST_MARKS", 2)
    rig = await make_rig()
    persons = Persons(rig.actions)
    for engine in ("a", "b", "a"):
        persons.veto("*", engine, 1.0, by="ann")
        persons.mark(engine, "drain", by="ann", minutes=1.0)
    with pytest.raises(OrderError, match=r"^veto: 2 stand, 2 at most; \* is any lever, and any engine$"):
        persons.veto("*", "c", 1.0, by="bob")
    with pytest.raises(OrderError, match=r"^mark: 2 engines are held, 2 at most; see: kvtide node list$"):
        persons.mark("c", "drain", by="bob")
    assert {each.engine for each in rig.actions.vetoes} == {each.engine for each in persons.marks()} == {"a", "b"}
    rig.clock.now += 61.0
    persons.veto("*", "c", 1.0, by="bob")
    persons.mark("c", "drain", by="bob")
