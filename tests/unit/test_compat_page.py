"""docs/compatibility.md: made from recorded results, and what a check finds that differs from it."""

from __future__ import annotations

from typing import Any

import pytest

from engine_hooks.wire import Support
from tests.compat.capabilities import CAPABILITIES, Capability
from tests.compat.fetch import PINS, parse_pins
from tests.compat.page import PAGE, load, render
from tests.compat.run import differences

TWO = (
    Capability("a lever", "that lever", lambda _: Support(ok=True)),
    Capability("a count", "its number", lambda _: Support(ok=True)),
)
YES = {"ok": True, "reason": ""}


def no(reason: str) -> dict[str, Any]:
    return {"ok": False, "reason": reason}


def result(version: str, lever: dict[str, Any], count: dict[str, Any], *failed: str) -> dict[str, Any]:
    return {"version": version, "failed": list(failed), "capabilities": {"a lever": lever, "a count": count}}


RECORDED = [
    result("0.1.2", no("Pool has no lever"), no("Pool|Queue has no count")),
    result("0.2.0", no("Pool has no lever"), no("Pool.count takes no kind")),
    result("0.3.1", YES, YES),
]


def lines_of(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith(("|", "-"))]


def test_page_has_a_column_per_version_and_a_reason_for_each_no() -> None:
    assert lines_of(render(RECORDED, TWO)) == [
        "| | 0.1.2 | 0.2.0 | 0.3.1 |",
        "|---|---|---|---|",
        "| **the hook tests** | pass | pass | pass |",
        "| a lever | no | no | yes |",
        "| a count | no | no | yes |",
        "| | in | because | without it |",
        "|---|---|---|---|",
        "| a lever | 0.1.2, 0.2.0 | Pool has no lever | that lever |",
        "| a count | 0.1.2 | Pool\\|Queue has no count | its number |",
        "| a count | 0.2.0 | Pool.count takes no kind | its number |",
    ]


def test_page_without_anything_missing_has_one_table() -> None:
    page = render([RECORDED[2]], TWO)
    assert "because" not in page
    assert "fail" not in page


def test_failed_tests_are_on_the_page() -> None:
    lines = lines_of(render([result("0.3.1", YES, YES, "test_x.py::test_y")], TWO))
    assert "| **the hook tests** | fail |" in lines
    assert lines[-1] == "- 0.3.1: `test_x.py::test_y`"


def test_a_probe_that_never_answered_is_not_taken_for_a_no() -> None:
    unanswered = {"version": "0.3.1", "failed": [], "capabilities": {"a lever": YES}}
    assert "| a count | not known |" in render([unanswered], TWO)


def test_check_is_quiet_on_some_of_what_is_recorded() -> None:
    assert differences([RECORDED[0], RECORDED[2]], RECORDED) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (result("0.3.1", no("gone"), YES), "0.3.1: a lever"),
        (result("0.2.0", no("another reason"), RECORDED[1]["capabilities"]["a count"]), "0.2.0: a lever"),
        (result("0.3.1", YES, YES, "test_x.py::test_y"), "0.3.1: failed tests"),
        (result("0.4.0", YES, YES), "0.4.0 is not on the page"),
        ({"version": "0.3.1", "failed": [], "capabilities": {"a lever": YES}}, "0.3.1: a count"),
    ],
)
def test_check_says_what_differs(now: dict[str, Any], said: str) -> None:
    (found,) = differences([now], RECORDED)
    assert found.startswith(said)


def test_page_in_the_tree_is_fresh_and_covers_every_pin_and_capability() -> None:
    recorded = load()
    assert PAGE.read_text() == render(recorded)
    assert [entry["version"] for entry in recorded] == [pin.version for pin in parse_pins(PINS.read_text())]
    for entry in recorded:
        assert entry["capabilities"].keys() == {capability.name for capability in CAPABILITIES}


def test_pins_are_exact() -> None:
    (pin,) = parse_pins("# a comment\n\nvllm==0.1.2 other==3  # more\n")
    assert (pin.version, pin.beside, pin.installed) == ("0.1.2", ("other==3",), False)
    with pytest.raises(ValueError, match="exact versions"):
        parse_pins("vllm>=0.1.2\n")
