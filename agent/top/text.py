"""Lines of a screen as values: spans of text with the name of a style, cut and padded by the cells that they take.

All text goes through :func:`agent.plain.plain`: names come from outside, and none of them steers the terminal. Nothing
here is markup: a name such as ``[red]`` is shown as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from agent.plain import plain

Span = tuple[str, str]  # text, name of a style (see look.py)
Line = tuple[Span, ...]
ELLIPSIS = "…"
MOST = 4096  # characters of one text that are looked at: more fits on no line


def line(*parts: str | Span) -> Line:
    """Return a line of plain strings and of spans."""
    return tuple((plain(part), "") if isinstance(part, str) else (plain(part[0]), part[1]) for part in parts)


def width_of(spans: Line) -> int:
    """Return the cells that a line takes."""
    return sum(cell_len(text) for text, _ in spans)


def cut(text: str, cells: int) -> str:
    """Return ``text`` as one line of at most so many cells; where something is cut off, its end says so."""
    text = plain(text, MOST)
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return ""
    return set_cell_size(text, cells - 1).rstrip() + ELLIPSIS


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Return ``text`` in exactly so many cells; ``right``: against the right edge."""
    text = cut(text, cells)
    gap = " " * (cells - cell_len(text))
    return gap + text if right else text + gap


def cut_line(spans: Line, cells: int) -> Line:
    """Return the spans in at most so many cells."""
    if width_of(spans) <= cells:
        return spans
    found: list[Span] = []
    left = cells - 1
    for text, style in spans:
        size = cell_len(text)
        if size > left:
            found.append((set_cell_size(text, max(0, left)) + ELLIPSIS, style))
            break
        found.append((text, style))
        left -= size
    return tuple(found)


def wrap(text: str, cells: int) -> list[str]:
    """Return ``text`` in lines of at most so many cells, broken at spaces where there are any."""
    cells = max(1, cells)
    lines, now = [], ""
    for word in plain(text, MOST).split(" "):
        longer = f"{now} {word}" if now else word
        if cell_len(longer) <= cells:
            now = longer
            continue
        if now:
            lines.append(now)
        while cell_len(word) > cells:
            head = set_cell_size(word, cells).rstrip() or word[:1]
            lines.append(head)
            word = word[len(head) :]  # noqa: PLW2901 - the rest of it
        now = word
    return [*lines, now] if now or not lines else lines


def paragraph(text: str, cells: int, style: str = "", indent: int = 0) -> list[Line]:
    """Return ``text`` as wrapped lines, each indented."""
    gap = " " * indent
    return [((gap, ""), (each, style)) if indent else ((each, style),) for each in wrap(text, cells - indent)]


def labelled(label: str, text: str, cells: int, style: str = "", indent: int = 12) -> list[Line]:
    """Return ``text`` wrapped in a column behind ``label``; a label too long for its column is cut."""
    lines = wrap(text, cells - indent)
    head = pad(label, indent - 1) + " "
    return [((head if number == 0 else " " * indent, "label"), (each, style)) for number, each in enumerate(lines)]


Cell = str | Span | Line | Callable[[int], Line]


@dataclass(frozen=True, slots=True)
class Column:
    """``least``: cells that it keeps however narrow the screen is; ``weight``: its share of what is left over, and it
    gives way first where there is too little; 0: as wide as its longest cell.
    """

    name: str
    least: int = 1
    weight: int = 0
    right: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], cells: int) -> tuple[Line, list[Line]]:
    """Return the heading and a line for each row, one space between columns; nothing is wider than ``cells``."""
    widths = _widths(columns, rows, cells)
    head: list[Span] = []
    for column, width in zip(columns, widths, strict=True):
        head += [(pad(column.name, width, right=column.right), "head"), (" ", "")]
    lines = [cut_line(_row(columns, row, widths), cells) for row in rows]
    return cut_line(tuple(head[:-1]), cells), lines


def _row(columns: Sequence[Column], row: Sequence[Cell], widths: Sequence[int]) -> Line:
    spans: list[Span] = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        if callable(cell):
            found = cut_line(cell(width), width)
            spans += [*found, (" " * (width - width_of(found)), "")]
        elif isinstance(cell, str):
            spans.append((pad(cell, width, right=column.right), ""))
        elif _is_span(cell):
            spans.append((pad(cell[0], width, right=column.right), cell[1]))  # type: ignore[arg-type]
        else:
            found = cut_line(cell, width)  # type: ignore[arg-type]
            spans += [*found, (" " * (width - width_of(found)), "")]
        spans.append((" ", ""))
    return tuple(spans[:-1])


def _is_span(cell: object) -> bool:
    return isinstance(cell, tuple) and len(cell) == 2 and isinstance(cell[0], str)


def _natural(cell: Cell) -> int:
    if callable(cell):
        return 0
    if isinstance(cell, str):
        return cell_len(plain(cell, MOST))
    if _is_span(cell):
        return cell_len(plain(cell[0], MOST))  # type: ignore[arg-type]
    return width_of(cell)  # type: ignore[arg-type]


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], cells: int) -> list[int]:
    widths = [
        max(column.least, cell_len(column.name), *(_natural(row[place]) for row in rows), 0)
        for place, column in enumerate(columns)
    ]
    room = cells - (len(columns) - 1)
    while (over := sum(widths) - room) > 0:  # the widest that may give way gives way first
        may = [place for place, column in enumerate(columns) if column.weight and widths[place] > column.least]
        if not may:
            break
        place = max(may, key=lambda each: widths[each])
        others = [widths[each] for each in may if each != place]
        target = max(columns[place].least, max(others, default=0) - 1, widths[place] - over)
        widths[place] = min(widths[place] - 1, target)
    spare = room - sum(widths)
    weights = sum(column.weight for column in columns)
    if spare > 0 and weights:
        share = spare // weights
        for place, column in enumerate(columns):
            widths[place] += share * column.weight
    return widths
