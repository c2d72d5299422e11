"""A report as Markdown, for a ticket or a wiki; its pictures are lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agent.plain import plain
from agent.report.document import Block, Box, Document, Heading, Items, Lead, Picture, Quiet, Table

_MARKS = re.compile(r"([\\`*{}\[\]<>#|~]|(?<!\w)_|_(?!\w))")  # within a word _ marks nothing


def render(document: Document) -> str:
    """Return the text. Nothing in a recording's own words is taken for Markdown."""
    lines = [f"# {_text(document.title)}", ""]
    for block in document.blocks:
        lines += [*_block(block), ""]
    return "\n".join(lines)


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading(text, small):
            yield f"{'###' if small else '##'} {_text(text)}"
        case Lead(lines):
            yield "\n\n".join(map(_text, lines))
        case Quiet(text):
            yield _text(text)
        case Box(weight, title, text, small):
            yield f"**{weight}: {_text(title)}** {_text(text)}{f' ({_text(small)})' if small else ''}"
        case Items(lines, none, numbered):
            marks = (f"{number}." if numbered else "-" for number in range(1, len(lines) + 1))
            yield from (f"{mark} {_text(line)}" for mark, line in zip(marks, lines, strict=True))
            if not lines:
                yield _text(none)
        case Table():
            yield from _table(block)
        case Picture(_, lines):
            yield from ("```text", *(plain(line) for line in lines), "```")


def _table(table: Table) -> Iterator[str]:
    if not table.rows:
        yield _text(table.none)
        return

    def row(cells: Sequence[str]) -> str:
        return f"| {' | '.join(map(_text, cells))} |"

    yield row(table.head)
    yield f"|{'|'.join('--:' if place in table.numbers else '---' for place in range(len(table.head)))}|"
    yield from map(row, table.rows)


def _text(text: str) -> str:
    return _MARKS.sub(r"\\\1", plain(text))
