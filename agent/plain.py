"""Text that comes from outside, made fit for a terminal, a log and JSON: nothing in it steers what shows it.

Escape sequences move the cursor, set titles and hide lines; marks of writing direction turn text around; halves of
surrogate pairs can't be written at all. Each such character becomes one that shows that there was something.
"""

from __future__ import annotations

import re

_SHOWN = "\N{REPLACEMENT CHARACTER}"
_HARM = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_IN_LINES = re.compile(f"[{_HARM}]")
_IN_A_LINE = re.compile(rf"[\t\n{_HARM}]")


def plain_lines(text: str) -> str:
    """Return ``text`` without what steers a terminal; ends of lines and tabs stay."""
    return text if text.isprintable() else _IN_LINES.sub(_SHOWN, text)


def plain(text: str, most: int | None = None) -> str:
    """Return ``text`` as one line without what steers a terminal. ``most``: characters; of more, the middle is cut."""
    if most is not None and len(text) > most:
        head = most // 2
        text = f"{text[:head]}...{text[-(most - head - 3) :]}"
    return text if text.isprintable() else _IN_A_LINE.sub(_SHOWN, text)
