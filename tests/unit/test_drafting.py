"""The state machine of speculative drafts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_hooks.core.drafting import MAY_STICK, NEXT, STUCK_SECONDS, DraftError, DraftState, DraftTable

NOTHING = {"drafting": 0, "committed": 0, "aborted": 0}


def test_a_request_drafts_commits_drafts_again_and_leaves() -> None:
    table = DraftTable()
    table.draft("a", 1, 0.0)
    assert table.counts() == {**NOTHING, "drafting": 1}
    table.commit("a", 1.0)
    assert table.counts() == {**NOTHING, "committed": 1}
    table.draft("a", 2, 2.0)
    table.commit("a", 3.0)
    table.forget("a")
    assert table.counts() == NOTHING
    assert len(table) == 0


def test_an_aborted_request_leaves_when_it_is_cleaned_up() -> None:
    table = DraftTable()
    table.draft("a", 1, 0.0)
    table.abort("a", 1.0)
    assert table.counts() == {**NOTHING, "aborted": 1}
    table.clean("a", 2.0)
    assert table.state("a") is None
    table.draft("a", 1, 3.0)  # it was preempted, and runs again
    assert table.state("a") is DraftState.DRAFTING


@pytest.mark.parametrize(
    "steps",
    [
        ("commit",),
        ("abort",),
        ("clean",),
        ("draft", "clean"),
        ("draft", "commit", "abort"),
        ("draft", "commit", "clean"),
        ("draft", "abort", "abort"),
        ("draft", "abort", "commit"),
        ("draft", "abort", "draft"),
    ],
)
def test_no_other_step_exists(steps: tuple[str, ...]) -> None:
    table = DraftTable()
    *first, last = (getattr(table, name) for name in steps)
    for step in first:
        step(*(("a", 1, 0.0) if step == table.draft else ("a", 0.0)))
    before = table.state("a")
    with pytest.raises(DraftError):
        last(*(("a", 1, 0.0) if last == table.draft else ("a", 0.0)))
    assert table.state("a") is before


def test_drafting_without_progress_is_stuck() -> None:
    table = DraftTable()
    table.draft("a", 1, 0.0)
    table.draft("b", 1, 0.0)
    table.draft("a", 1, 9.0)
    table.draft("b", 2, 9.0)
    assert table.stuck(STUCK_SECONDS) == 0
    assert table.stuck(STUCK_SECONDS + 0.1) == 1
    assert table.stuck(9.0 + STUCK_SECONDS + 0.1) == 2


def test_being_aborted_is_stuck_from_the_abort_on() -> None:
    table = DraftTable()
    table.draft("a", 1, 0.0)
    table.abort("a", 8.0)
    assert table.stuck(8.0 + STUCK_SECONDS) == 0
    assert table.stuck(8.1 + STUCK_SECONDS) == 1


def test_a_request_that_has_committed_is_never_stuck() -> None:
    table = DraftTable()
    table.draft("a", 1, 0.0)
    table.commit("a", 1.0)
    table.commit("a", 2.0)
    assert table.stuck(1e6) == 0


def test_the_table_has_a_limit() -> None:
    table = DraftTable(limit=2)
    for key in "abc":
        table.draft(key, 1, 0.0)
    assert table.requests() == ["a", "b"]
    table.forget("a")
    table.draft("c", 1, 0.0)
    assert table.requests() == ["b", "c"]


@given(st.lists(st.tuples(st.sampled_from(["draft", "commit", "abort", "clean", "forget"]), st.sampled_from("ab"))))
def test_every_path_stays_in_the_machine(steps: list[tuple[str, str]]) -> None:
    table = DraftTable()
    for now, (name, key) in enumerate(steps):
        before = table.state(key)
        call = getattr(table, name)
        try:
            if name == "draft":
                call(key, now, float(now))
            elif name == "forget":
                call(key)
            else:
                call(key, float(now))
        except DraftError:
            assert table.state(key) is before
            continue
        after = table.state(key)
        assert after is before or after is None or after in NEXT[before]
        assert table.stuck(float(now) + STUCK_SECONDS + 1.0) == sum(
            table.state(request) in MAY_STICK for request in table.requests()
        )
        assert sum(table.counts().values()) == len(table)
