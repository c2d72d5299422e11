"""The desk obeys once, refuses with a reason, lets go in time, and never raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.guard import Guard
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.desk import AGAIN_SECONDS, NEVER, REMEMBERED, LeverDesk, build
from engine_hooks.levers.orders import CODES, ActionOrder, ActionResult, Arguments, Op

ME = "instance-1"


class Knob:
    """A lever that sets a number, and puts the one before back."""

    NAME = "knob"

    def __init__(self) -> None:
        self.value = 10
        self.applied = self.undone = 0
        self.undo_raises = self.again = self.REPLACES = False
        self.refuses: set[int] = set()

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        return {"after_value": whole(arguments, "value", 0, 100)}

    def apply(self, arguments: Arguments) -> Done:
        value, before = whole(arguments, "value", 0, 100), self.value
        if value == 99:
            raise RuntimeError("no\nsuch \x1b[31mluck")
        if value in self.refuses:
            raise RefusedError("unsafe", "not now")
        self.value = value
        self.applied += 1

        def undo() -> dict[str, int | float]:
            self.undone += 1
            if self.undo_raises:
                raise OSError("gone")
            if not self.REPLACES or self.value == value:
                self.value = before
            return {"after_value": before}

        return Done({"before_value": before, "after_value": value}, undo, again=self.again)


class Pulse:
    """A lever with nothing to take back."""

    NAME = "pulse"

    def __init__(self) -> None:
        self.count = 0

    def would(self, _arguments: Arguments) -> dict[str, int | float]:
        return {}

    def apply(self, _arguments: Arguments) -> Done:
        self.count += 1
        return Done({"count": self.count})


class Bed:
    def __init__(self, *allowed: str) -> None:
        self.now = 100.0
        self.knob, self.pulse, self.guard = Knob(), Pulse(), Guard()
        self.desk = LeverDesk(
            ME,
            {"knob": self.knob, "pulse": self.pulse},
            unsupported={"sleep": "this vLLM has no sleep"},
            allowed=allowed or ("knob", "pulse", "sleep"),
            guard=self.guard,
            clock=lambda: self.now,
        )

    def say(self, op: Op, lever: str = "knob", action: str = "a1", waited: float = 0.0, **changes: Any) -> ActionResult:
        order = ActionOrder(action=action, lever=lever, op=op, instance=ME, arguments={"value": 5})
        return self.desk.execute(msgspec.structs.replace(order, **changes), waited)


def test_it_applies_keeps_renews_and_undoes() -> None:
    bed = Bed()
    done = bed.say("apply", lease_seconds=30.0)
    assert (done.ok, done.code, done.in_force, bed.knob.value) == (True, "done", True, 5)
    assert done.effect == {"before_value": 10, "after_value": 5}
    assert bed.desk.next_expiry == 130.0
    bed.now = 125.0
    assert bed.say("renew", lease_seconds=30.0).in_force
    bed.now = 154.0
    assert bed.desk.tick() == ()
    (row,) = bed.desk.in_force()
    assert (row.action, row.lever, row.left_seconds, row.arguments) == ("a1", "knob", 1.0, {"value": 5})
    undone = bed.say("undo")
    assert (undone.code, undone.in_force, undone.effect, bed.knob.value) == ("undone", False, {"after_value": 10}, 10)
    assert (bed.desk.in_force(), bed.desk.next_expiry) == ((), NEVER)
    assert bed.say("undo").code == "unknown"
    assert bed.knob.undone == 1


def test_a_lease_that_nobody_renews_is_undone_by_itself() -> None:
    bed = Bed()
    bed.say("apply", lease_seconds=30.0)
    bed.now = 130.0
    (told,) = bed.desk.tick()
    assert (told.action, told.op, told.code, told.ok, bed.knob.value) == ("a1", "undo", "expired", True, 10)
    assert bed.desk.tick() == ()
    assert bed.say("renew").code == "unknown"


def test_an_action_is_done_once_however_often_it_is_ordered() -> None:
    bed = Bed()
    first = bed.say("apply", lever="pulse")
    assert bed.say("apply", lever="pulse") == first
    assert bed.pulse.count == 1
    assert not first.in_force
    assert bed.say("apply", lever="pulse", action="a2").effect == {"count": 2}
    for number_ in range(REMEMBERED):
        bed.say("apply", lever="pulse", action=f"b{number_}")
    assert len(bed.desk._answered) == REMEMBERED


def test_what_was_refused_for_being_late_may_come_again() -> None:
    bed = Bed()
    late = bed.say("apply", waited=3.0, valid_seconds=2.0)
    assert (late.ok, late.code, bed.knob.applied) == (False, "stale", 0)
    assert bed.say("apply", waited=0.1).code == "done"


def test_undoing_is_never_too_late_and_never_forbidden() -> None:
    bed = Bed()
    bed.say("apply")
    bed.desk._allowed = frozenset()
    assert bed.say("undo", waited=1000.0).code == "undone"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"instance": "instance-2"}, "wrong_engine"),
        ({"lever": "sleep"}, "unsupported"),
        ({"lever": "no-such"}, "unknown"),
        ({"arguments": {"value": 101}}, "bad_argument"),
        ({"arguments": {"value": 1.5}}, "bad_argument"),
        ({"arguments": {"value": True}}, "bad_argument"),
        ({"arguments": {"value": "5"}}, "bad_argument"),
        ({"arguments": {}}, "bad_argument"),
        ({"arguments": {"value": 99}}, "failed"),
    ],
)
def test_refusals_say_why_and_change_nothing(changes: dict[str, Any], code: str) -> None:
    bed = Bed()
    result = bed.say("apply", **changes)
    assert (result.ok, result.code, result.in_force) == (False, code, False)
    assert result.detail
    assert result.detail.isprintable()
    assert (bed.knob.value, bed.desk.in_force()) == (10, ())
    assert bed.guard.errors == ({"lever_knob": 1} if code == "failed" else {})


def test_the_environment_has_the_last_word() -> None:
    bed = Bed("pulse")
    refused = bed.say("apply")
    assert (refused.code, bed.knob.value) == ("not_allowed", 10)
    rows = {row.lever: (row.ok, row.reason) for row in bed.desk.rows()}
    assert rows["pulse"] == (True, "")
    assert rows["sleep"] == (False, "this vLLM has no sleep")
    assert rows["knob"][1] == refused.detail == "KVTIDE_LEVERS in the engine's environment does not list knob"


def test_nothing_is_allowed_unless_it_is_listed() -> None:
    desk = LeverDesk(ME, {"knob": Knob()}, unsupported={}, allowed=(), guard=Guard())
    assert desk.execute(ActionOrder(action="a", lever="knob", op="apply", instance=ME), 0.0).code == "not_allowed"


def test_a_dry_run_tells_and_changes_nothing() -> None:
    bed = Bed("pulse")
    tried = bed.say("try")
    assert (tried.ok, tried.code, tried.effect) == (True, "would", {"after_value": 5})
    assert "KVTIDE_LEVERS" in tried.detail  # what it would take
    assert (bed.knob.value, bed.knob.applied, bed.desk.in_force()) == (10, 0, ())
    assert bed.say("try", lever="sleep").code == "unsupported"


def test_two_actions_never_hold_one_lever() -> None:
    bed = Bed()
    bed.say("apply")
    other = bed.say("apply", action="a2", arguments={"value": 7})
    assert (other.code, bed.knob.value) == ("conflict", 5)
    assert "a1" in other.detail
    assert bed.say("renew", action="a2").code == "unknown"
    assert bed.say("undo", action="a2").code == "unknown"
    assert bed.knob.value == 5


def test_an_amendment_takes_the_place_of_what_is_in_force() -> None:
    bed = Bed()
    bed.say("apply")
    amended = bed.say("amend", arguments={"value": 3})
    assert (amended.code, amended.in_force, bed.knob.value) == ("done", True, 3)
    assert bed.desk.in_force()[0].arguments == {"value": 3}
    bed.say("undo")
    assert bed.knob.value == 10  # not 5: what was there before the first


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize(("value", "code"), [(101, "bad_argument"), (99, "failed")])
def test_an_amendment_that_is_refused_leaves_what_is_in_force(replaces: bool, value: int, code: str) -> None:
    """Somebody who mistypes a change must not lose what was ordered before."""
    bed = Bed()
    bed.knob.REPLACES = replaces
    bed.say("apply", lease_seconds=30.0)
    refused = bed.say("amend", arguments={"value": value}, lease_seconds=600.0)
    assert (refused.code, refused.in_force, bed.knob.value) == (code, True, 5)
    assert bed.desk.in_force()[0].arguments == {"value": 5}
    assert bed.desk.next_expiry == bed.now + 30.0, "no longer than before"
    assert bed.say("renew").ok
    bed.say("undo")
    assert (bed.knob.value, bed.desk.in_force()) == (10, ())


def test_where_what_was_before_can_not_be_had_again_nothing_is_in_force() -> None:
    bed = Bed()
    bed.say("apply")
    bed.knob.refuses = {5}
    refused = bed.say("amend", arguments={"value": 101})
    assert (refused.code, refused.in_force, bed.knob.value) == ("bad_argument", False, 10)
    assert bed.desk.next_expiry == NEVER


def test_a_dry_run_of_a_change_is_answered_where_it_would_take_the_place_of_what_is_in_force() -> None:
    bed = Bed()
    bed.say("apply")
    assert bed.say("try", action="a2", arguments={"value": 7}).code == "conflict"
    bed.knob.REPLACES = True
    tried = bed.say("try", action="a2", arguments={"value": 7})
    assert (tried.code, tried.effect, bed.knob.value) == ("would", {"after_value": 7}, 5)


def test_an_undo_that_fails_is_told_and_not_tried_for_ever() -> None:
    bed = Bed()
    bed.say("apply")
    bed.knob.undo_raises = True
    failed = bed.say("undo")
    assert (failed.ok, failed.code, failed.in_force) == (False, "failed", False)
    assert bed.guard.errors == {"lever_knob": 1}
    bed.now += 1000
    assert bed.desk.tick() == ()


def test_levers_that_cannot_be_made_are_told() -> None:
    def raises(error: Exception) -> Callable[[], Any]:
        def make() -> Any:
            raise error

        return make

    levers, unsupported = build(
        [
            ("knob", Knob),
            ("trim", raises(RefusedError("unsupported", "no device"))),
            ("odd", raises(AttributeError("x\ny"))),
        ]
    )
    assert list(levers) == ["knob"]
    assert unsupported == {"trim": "no device", "odd": "AttributeError: x?y"}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["try", "apply", "renew", "amend", "undo", "wait"]),
            st.sampled_from(["a", "b"]),
            st.integers(-1, 101),
        ),
        max_size=40,
    )
)
def test_whatever_is_ordered_the_knob_is_back_when_the_leases_are_over(moves: list[tuple[Any, str, int]]) -> None:
    bed = Bed()
    for number_, (op, action, value) in enumerate(moves):
        if op == "wait":
            bed.now += 20
            bed.desk.tick()
            continue
        name = f"{action}{number_}" if op == "apply" else action
        result = bed.say(op, action=name, arguments={"value": value}, lease_seconds=30.0)
        assert result.code in CODES
        held = bed.desk.in_force()
        assert bed.knob.value == (held[0].arguments["value"] if held else 10)
    bed.now += 31
    bed.desk.tick()
    assert (bed.knob.value, bed.desk.in_force(), bed.knob.applied) == (10, (), bed.knob.undone)


def test_a_number_is_within_its_bounds() -> None:
    assert number({"x": 0.5}, "x", 0, 1) == 0.5
    assert number({}, "x", 0, 1, 0.25) == 0.25
    with pytest.raises(RefusedError, match=r"^x: 2: must be a number in 0\.\.1$"):
        number({"x": 2}, "x", 0, 1)
    with pytest.raises(RefusedError, match=r"^x is needed: a number in 0\.\.1$"):
        number({}, "x", 0, 1)
    with pytest.raises(RefusedError):
        number({"x": float("nan")}, "x", 0, 1)


def test_an_undo_that_may_be_tried_again_is_until_it_is_done() -> None:
    bed = Bed()
    bed.knob.again = bed.knob.undo_raises = True
    bed.say("apply", arguments={"value": 40})
    failed = bed.say("undo")
    assert (failed.code, failed.in_force, bed.knob.value) == ("failed", False, 40)
    assert [row.action for row in bed.desk.in_force()] == ["a1"], "whoever connects learns of it"
    assert bed.say("apply", action="a2").code == "conflict"
    assert bed.desk.tick() == ()
    bed.now += AGAIN_SECONDS
    assert [each.code for each in bed.desk.tick()] == ["failed"]
    bed.knob.undo_raises = False
    bed.now += AGAIN_SECONDS
    assert [each.ok for each in bed.desk.tick()] == [True]
    assert (bed.knob.value, bed.desk.in_force(), bed.desk.next_expiry) == (10, (), NEVER)
    assert bed.say("apply", action="a3").ok


def test_a_person_s_undo_does_not_wait_for_the_next_try() -> None:
    bed = Bed()
    bed.knob.again = bed.knob.undo_raises = True
    bed.say("apply", arguments={"value": 40})
    bed.say("undo")
    bed.knob.undo_raises = False
    assert bed.say("undo").code == "undone"
    assert (bed.knob.value, bed.knob.undone, bed.desk.next_expiry) == (10, 2, NEVER)
