"""The first screen, written by hand: the program that draws the others is still being imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from agent.plain import plain
from agent.top.frame import Row
from agent.top.look import Look

_CODES = {"bold": "1", "dim": "2", "underline": "4", "reverse": "7"}
_ENTER, _LEAVE = "\x1b[?1049h\x1b[2J\x1b[?25l", "\x1b[?1049l\x1b[?25h"


@contextmanager
def first_screen(rows: Sequence[Row]) -> Iterator[None]:
    """Show ``rows`` on the terminal's other screen, where the program goes on after the block; when that is left by an
    exception the terminal is as it was.
    """
    _write(_ENTER + "".join(f"\x1b[{number};1H{_drawn(row)}" for number, row in enumerate(rows, 1)))
    try:
        yield
    except BaseException:
        _write(_LEAVE)
        raise


def _write(text: str) -> None:
    file = sys.__stderr__  # where the program draws
    if file is not None and file.isatty():
        file.write(text)
        file.flush()


def _drawn(row: Row) -> str:
    """Return a line with its styles, without colours: which of them the terminal has is not known yet."""
    look = Look(mono=True)
    return "".join(_styled(plain(text), look.style(name, stale=row.stale)) for text, name in row.line)


def _styled(text: str, style: str) -> str:
    codes = ";".join(_CODES[word] for word in style.split() if word in _CODES)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text
