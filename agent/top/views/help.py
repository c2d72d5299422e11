"""The keys, and how to read what is drawn."""

from __future__ import annotations

from agent.top.bars import POOL
from agent.top.seen import Page, Room
from agent.top.text import labelled

NAME = "help"
KEYS = (
    ("1 .. 6, tab", "node, engine, tenants, block ages, verdicts, actions"),
    ("up, down, j, k", "choose a row; page up, page down, home, end too"),
    ("enter", "go into it: engine, its tenants, block ages; an action explained"),
    ("escape", "go back; clears a filter first"),
    ("[ ]", "the engine before, the next one"),
    ("s, S", "sort by the next column; the other way round"),
    ("f", "filter: only rows that have this text"),
    ("/, n, N", "search: the next row that has this text; onward, backward"),
    ("space", "hold the screen, go on; in a replay: pause, play"),
    ("left, right", "replay: 10 s back, forward; with shift a minute"),
    ("+, -", "replay: twice as fast, half as fast"),
    ("?", "this page; any key leaves it"),
    ("q, ctrl-c", "end"),
)
READING = (
    ("PAGE WARN", "verdicts: somebody gets up; to be seen to in working hours"),
    ("! !! !!!", "behind a health score: warning, severe, emergency"),
    ("-", "not known, which is not zero; with a reason where there is one"),
    ("?", "behind held or orphaned: counted, the blocks are not named yet"),
)


def page(room: Room) -> Page:
    """Return the page."""
    found = Page()
    for name, words in KEYS:
        found.lines += labelled(name, words, room.width, "", 16)
    found.lines.append(())
    for name, words in READING:
        found.lines += labelled(name, words, room.width, "", 16)
    letters = "  ".join(f"{letter} {word}" for letter, word, _ in POOL)
    found.lines += labelled("KV pool", letters, room.width, "", 16)
    return found
