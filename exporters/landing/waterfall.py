"""Where each GPU's memory is: a bar, and the same in numbers for those who can't see it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from html import escape

from agent.faces.lines import Line
from agent.faces.waterfall import OTHERS, RARE, UNATTRIBUTED, WARN, WORDS
from agent.state import AgentState
from agent.units import human_bytes
from agent.waterfall.build import summed
from agent.waterfall.state import Part, Waterfall
from exporters.landing.markup import lines, row, section, table

_COLOURS = {"grey50": "#888"}  # a name that only terminals know
_LIGHT = "#0072b2"  # so dark that black letters can't be read on it
_LETTERED = 0.025  # share of the bar from which on a letter fits into a part
_COLUMNS = ("part", "size", "share", "error", "whose")


def boxes(state: AgentState) -> str:
    """Return a box for each GPU, or MIG instance, whose memory is looked into."""
    return "".join(_box(found) for found in state.waterfalls)


def _box(found: Waterfall) -> str:
    size = "" if found.total_bytes is None else f": {human_bytes(found.total_bytes)}"
    parts = sorted(summed(found.parts), key=lambda part: list(WORDS).index(part.part))
    told = lines(Line("note", f"{reason}.", WARN) for reason in found.reasons)
    return section(
        f"Memory of GPU {found.gpu}{size}", _bar(found, parts), table(_COLUMNS, _rows(found, parts), "named"), told
    )


def _bar(found: Waterfall, parts: list[Part]) -> str:
    total = found.total_bytes
    if not total:
        return ""
    pieces = [(WORDS[part.part][0], part.owner, part.bytes, _drawn(part.part)) for part in parts]
    pieces.append((UNATTRIBUTED[0], "", found.unattributed_bytes or 0, _drawn("")))
    shown = [piece for piece in pieces if piece[2] > 0]
    words = ", ".join(f"{name}{f' of {owner}' if owner else ''} {size / total:.1%}" for name, owner, size, _ in shown)
    spans = "".join(_span(f"{name} {owner}".strip(), size, total, drawn) for name, owner, size, drawn in shown)
    return f'<div class="bar" role="img" aria-label="{escape(words)}">{spans}</div>'


def _span(name: str, size: int, total: int, drawn: tuple[str, str, str]) -> str:
    letter, colour, css = drawn
    style = f"flex:{size} 1 0;min-width:2px;background-color:{colour}"
    title = f"{escape(name)}: {human_bytes(size)}"
    return f'<span class="{css}" style="{style}" title="{title}">{letter if size >= _LETTERED * total else ""}</span>'


def _rows(found: Waterfall, parts: list[Part]) -> Iterator[str]:
    for part in parts:
        if part.bytes or part.part not in RARE:
            whose = f"{part.count} process{'' if part.count == 1 else 'es'}" if part.part == OTHERS else part.owner
            numbers = _numbers(part.bytes, part.error_bytes, found.total_bytes)
            yield row(WORDS[part.part][0], (*numbers, whose), key=_key(part.part))
    if found.unattributed_bytes is not None:
        numbers = _numbers(found.unattributed_bytes, found.error_bytes, found.total_bytes)
        yield row(UNATTRIBUTED[0], (*numbers, ""), key=_key(""))


def _numbers(size: int, error: int, total: int | None) -> tuple[str, str, str]:
    return human_bytes(size), f"{size / total:.1%}" if total else "", f"± {human_bytes(error)}" if error else ""


def _key(part: str) -> str:
    letter, colour, css = _drawn(part)
    return f'<span class="key {css}" style="background-color:{colour}" aria-hidden="true">{letter}</span>'


def _drawn(part: str) -> tuple[str, str, str]:
    """Return a part's letter, colour and classes; the empty name is the remainder's."""
    _, letter, colour = WORDS.get(part, UNATTRIBUTED)
    if part == "free":
        return "", "#8883", ""
    before = itertools.takewhile(lambda other: other != part, WORDS)
    striped = any(WORDS[other][2] == colour for other in before)  # two parts of one colour
    return letter, _COLOURS.get(colour, colour), " ".join(("light",) * (colour == _LIGHT) + ("striped",) * striped)
