"""Lines: whatever the text, they are as wide as they are said to be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from agent.plain import plain
from agent.top.bars import HEIGHTS, bar, spark
from agent.top.history import MOST_MOMENTS, History, Moment, Point, Who
from agent.top.text import Column, cut, cut_line, labelled, line, pad, table, width_of, wrap

TEXTS = st.text(st.characters(), max_size=60)


@given(TEXTS, st.integers(0, 50))
def test_cut_and_pad_keep_to_their_cells(text: str, cells: int) -> None:
    assert cell_len(cut(text, cells)) <= cells
    assert cell_len(pad(text, cells)) == cells
    assert plain(cut(text, cells)) == cut(text, cells)


def test_what_is_cut_shows_that_it_is() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
    assert pad("ab", 4, right=True) == "  ab"


@given(TEXTS, st.integers(2, 50))
def test_wrapping_loses_no_letter_and_keeps_to_its_cells(text: str, cells: int) -> None:
    lines = wrap(text, cells)
    assert all(cell_len(each) <= cells for each in lines)
    assert "".join("".join(lines).split()) == "".join(line(text)[0][0].split())


def test_words_stay_whole_where_they_can() -> None:
    assert wrap("the pool is full", 8) == ["the pool", "is full"]
    assert labelled("a very long label", "text that is long", 24)[0][0][0] == "a very lon… "


@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=6), st.integers(10, 120))
def test_no_row_of_a_table_is_too_wide(rows: list[tuple[str, str, str]], cells: int) -> None:
    columns = (Column("name", 4, 1), Column("n", right=True), Column("what", 6, 2))
    head, lines = table(columns, rows, cells)
    assert all(width_of(each) <= cells for each in (head, *lines))


def test_names_give_way_and_numbers_stay_whole() -> None:
    columns = (Column("name", 4, 1), Column("blocks", right=True))
    _, lines = table(columns, [("n" * 40, "1,234,567")], 20)
    assert "".join(text for text, _ in lines[0]) == "nnnnnnnnn… 1,234,567"


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12), st.integers(12, 100))
def test_a_bar_is_as_wide_as_it_should_be_and_shows_each_part(sizes: list[int], cells: int) -> None:
    parts = [(chr(ord("A") + place), "", size) for place, size in enumerate(sizes)]
    text = "".join(each for each, _ in bar(parts, sum(sizes), cells))
    assert len(text) == cells
    assert set(text) - {" "} == {letter for letter, _, size in parts if size}


def test_sparks() -> None:
    assert spark([0.0, 0.5, 1.0], 5, 0.0, 1.0) == f"  {HEIGHTS[0]}{HEIGHTS[4]}{HEIGHTS[7]}"
    assert spark([None, 2.0, -1.0], 3, 0.0, 1.0) == f"·{HEIGHTS[7]}{HEIGHTS[0]}"
    assert spark([0.0] * 9, 4, 0.0, 1.0) == HEIGHTS[0] * 4
    assert spark([3.0], 2, 1.0, 1.0) == f" {HEIGHTS[0]}"


def test_a_line_is_cut_in_its_spans() -> None:
    assert cut_line((("abc", "x"), ("def", "y")), 5) == (("abc", "x"), ("d…", "y"))


def test_a_history_is_bounded_and_begins_anew_with_another_life() -> None:
    who, history = Who("m", hooked=True), History()
    for second in range(MOST_MOMENTS + 50):
        history.take(Moment(float(second), {who: Point(0.1, None, None)}))
    assert len(history.of(who)) == MOST_MOMENTS
    assert history.seconds(10) == 9.0
    history.take(Moment(MOST_MOMENTS + 49.0, {}))  # the same moment again
    assert len(history.of(who)) == MOST_MOMENTS
    history.take(Moment(3.0, {}))
    assert history.of(who) == []
    history.take(Moment(4.0, {who: Point(0.2, None, None)}))
    history.take(Moment(5.0, {}))
    assert history.of(who) == [Point(0.2, None, None), None]
