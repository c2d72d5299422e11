"""What a report is made of, whatever it is written as. All text is as it came: who writes it out makes it harmless."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Heading(NamedTuple):
    """Of a section, or of a part of one (``small``)."""

    text: str
    small: bool = False


class Lead(NamedTuple):
    """The sentences that everybody reads."""

    lines: Sequence[str]


class Quiet(NamedTuple):
    """What need not be read."""

    text: str


class Items(NamedTuple):
    """A list, numbered where its order counts; ``none``: what to say where it is empty."""

    lines: Sequence[str]
    none: str = ""
    numbered: bool = False


class Box(NamedTuple):
    """Something of weight: page, warn, note, good, harm or action. ``small`` is said in small letters below."""

    weight: str
    title: str
    text: str
    small: str = ""


class Table(NamedTuple):
    """``numbers``: columns that are lined up at the right. ``none``: what to say where there is no row."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()
    none: str = ""


class Picture(NamedTuple):
    """``svg``: a drawing, without names of its own that could harm; ``lines``: the same for where only text can be."""

    svg: str
    lines: Sequence[str]


Block = Heading | Lead | Quiet | Items | Box | Table | Picture


class Document(NamedTuple):
    """A title and what comes under it."""

    title: str
    blocks: Sequence[Block]
