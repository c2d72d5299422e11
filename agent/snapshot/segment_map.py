"""The segments of a device as a picture: a row each, its blocks side by side. SVG; bounded whatever the snapshot is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import msgspec

from agent.snapshot.model import INACTIVE, STATE_NAMES, Block, Segment, Stacks
from agent.snapshot.sites import site_label
from agent.units import human_bytes

WIDTH = 1000
LEFT = 200
LABEL = 32  # letters that fit to the left
ROWS = 80  # segments drawn
MOST = 20_000  # rectangles drawn, each some 130 bytes of page
LEAST = 2.0  # units: what is narrower is drawn with its neighbours; more where there are too many
CLASSES = ("a", "w", "f", "m")  # active, awaiting, free, and several blocks in one rectangle
_MIB = 1 << 20


class Map(msgspec.Struct, frozen=True, kw_only=True):
    """``svg`` is safe to put into a page. ``rects``: how many were drawn; ``folded``: blocks drawn with others."""

    svg: str
    rects: int
    folded: int
    segments: int
    left_out: int
    left_out_size: int


def segment_map(segments: Sequence[Segment], stacks: Stacks, rows: int = ROWS, most: int = MOST) -> Map:
    """Return the picture of the ``rows`` segments with most free space in ``most`` rectangles, or one a row."""
    ordered = sorted(segments, key=lambda segment: (-segment.free, -segment.size, segment.address))
    shown, rest = ordered[:rows], ordered[rows:]
    # Neighbours in the picture are neighbours by pool, so that a private pool is seen as one.
    shown.sort(key=lambda segment: (segment.pool, segment.stream))
    least = LEAST
    parts, rects, folded, height = _rows(shown, stacks, least)
    while rects > most and least < WIDTH:
        least *= 2
        parts, rects, folded, height = _rows(shown, stacks, least)
    body = "\n".join(parts)
    size = f'viewBox="0 0 {LEFT + WIDTH} {max(1, height)}" width="100%"'
    return Map(
        svg=f'<svg class="map" {size} role="img" aria-label="segments">{body}</svg>',
        rects=rects,
        folded=folded,
        segments=len(shown),
        left_out=len(rest),
        left_out_size=sum(segment.size for segment in rest),
    )


def _rows(segments: Sequence[Segment], stacks: Stacks, least: float) -> tuple[list[str], int, int, int]:
    """Return the rows, how many rectangles they have, how many blocks were folded, and the height."""
    parts: list[str] = []
    y = rects = folded = 0
    for segment in segments:
        height = _height(segment.size)
        drawn, hidden = _row(segment, stacks, least, (y, height))
        parts.append(_label(segment, y, height))
        parts += drawn
        rects += len(drawn)
        folded += hidden
        y += height + 3
    return parts, rects, folded, y


def _height(size: int) -> int:
    """Return a row's height: larger segments are higher, in steps that keep the small ones visible."""
    return 13 if size <= 32 * _MIB else 18 if size <= 1024 * _MIB else 26


def _label(segment: Segment, y: int, height: int) -> str:
    pool = "" if segment.pool == (0, 0) else f" pool {segment.pool[0]},{segment.pool[1]}"
    text = escape(f"{human_bytes(segment.size)}{pool}{' side stream' if segment.stream else ''}"[:LABEL])
    return f'<text x="{LEFT - 6}" y="{y + height - 3}" text-anchor="end">{text}</text>'


def _row(segment: Segment, stacks: Stacks, least: float, place: tuple[int, int]) -> tuple[list[str], int]:
    """Return the rectangles of one segment, and how many blocks were folded into others."""
    if not segment.size:
        return [], 0
    scale = WIDTH / segment.size
    y, height = place
    rects: list[str] = []
    folded = at = 0
    narrow: list[Block] = []  # neighbours that are gathered, and their bytes
    gathered = 0

    def rect(kind: str, label: str, start: int, size: int) -> None:
        rects.append(
            f'<rect class="{kind}" x="{LEFT + start * scale:.1f}" y="{y}" width="{max(0.3, size * scale):.1f}" '
            f'height="{height}"><title>{escape(label)}</title></rect>'
        )

    for block in segment.blocks:
        wide = block.size * scale >= least
        if narrow and (wide or gathered * scale >= least):
            rect(*_several(narrow), at - gathered, gathered)
            folded += len(narrow)
            narrow, gathered = [], 0
        if wide:
            rect(CLASSES[block.state], _words(block, stacks), at, block.size)
        else:
            narrow.append(block)
            gathered += block.size
        at += block.size
    if narrow:
        rect(*_several(narrow), at - gathered, gathered)
        folded += len(narrow)
    return rects, folded


def _words(block: Block, stacks: Stacks) -> str:
    label = f"{human_bytes(block.size)} {STATE_NAMES[block.state]}"
    return label if block.state == INACTIVE else f"{label}: {site_label(stacks.frames[stacks.sites[block.stack]])}"


def _several(blocks: list[Block]) -> tuple[str, str]:
    """Return the class of neighbours that are drawn as one, and what they are."""
    sizes = [0, 0, 0]
    for block in blocks:
        sizes[block.state] += block.size
    kinds = [kind for kind, size in zip(CLASSES, sizes, strict=False) if size]
    parts = ", ".join(f"{human_bytes(size)} {STATE_NAMES[state]}" for state, size in enumerate(sizes) if size)
    label = f"{len(blocks)} block{'s' if len(blocks) > 1 else ''}: {parts or '0 B'}"
    return kinds[0] if len(kinds) == 1 else "m", label
