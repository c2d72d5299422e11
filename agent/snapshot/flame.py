"""A flame graph of the bytes in use by call stack: SVG, the outermost frame at the top; bounded."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import msgspec

from agent.snapshot.model import Segment, Stacks
from agent.snapshot.sites import live_by_stack, site_label
from agent.units import human_bytes

WIDTH = 1170
ROW = 17
LEAST = 0.0012  # of all bytes: what is narrower is not drawn
DEEPEST = 60  # levels drawn
MOST = 4000  # rectangles drawn
LETTER = 6.4  # units that a letter takes


class Flame(msgspec.Struct, frozen=True, kw_only=True):
    """``svg`` is safe to put into a page. ``folded``: bytes whose frames were too narrow or too deep to be drawn."""

    svg: str
    rects: int
    size: int
    folded: int


class _Node:
    __slots__ = ("children", "frame", "own", "size")

    def __init__(self, frame: int) -> None:
        self.frame = frame
        self.size = 0
        self.own = 0
        self.children: dict[int, _Node] = {}


def flame(segments: Iterable[Segment], stacks: Stacks) -> Flame:
    """Return the picture. Frames that all stacks begin with are kept: they say which thread it was."""
    root = _Node(0)
    for stack, (_, size) in live_by_stack(segments).items():
        root.size += size
        node = root
        for frame in stacks.stacks[stack][: -DEEPEST - 1 : -1] or (0,):
            child = node.children.get(frame)
            if child is None:
                child = node.children[frame] = _Node(frame)
            child.size += size
            node = child
        node.own += size
    parts, folded, depth = _draw(root, stacks)
    height = (depth + 1) * ROW
    svg = (
        f'<svg class="flame" viewBox="0 0 {WIDTH} {max(ROW, height)}" width="100%" role="img" '
        f'aria-label="bytes in use by call stack">{"".join(parts)}</svg>'
    )
    return Flame(svg=svg, rects=len(parts), size=root.size, folded=folded)


def _draw(root: _Node, stacks: Stacks) -> tuple[list[str], int, int]:
    parts: list[str] = []
    folded = deepest = 0
    # By level, so that where the number of rectangles ends, the inner ends are what is left off.
    level: list[tuple[_Node, float]] = [(child, x) for child, x in _beside(root, 0.0, root.size)]
    depth = 0
    while level:
        below: list[tuple[_Node, float]] = []
        for node, x in level:
            if node.size < LEAST * root.size or len(parts) >= MOST:
                folded += node.size
                continue
            deepest = depth
            parts.append(_box(node, x, depth, root.size, stacks))
            below += _beside(node, x, root.size)
        level, depth = below, depth + 1
    return parts, folded, deepest


def _beside(node: _Node, x: float, total: int) -> Iterable[tuple[_Node, float]]:
    """Yield a node's children, the largest first, each with its left edge."""
    for child in sorted(node.children.values(), key=lambda child: -child.size):
        yield child, x
        x += WIDTH * child.size / total


def _box(node: _Node, x: float, depth: int, total: int, stacks: Stacks) -> str:
    width = WIDTH * node.size / total
    label = site_label(stacks.frames[node.frame])
    title = f"{label}\n{human_bytes(node.size)}, {node.size / total:.1%}"
    fits = int(width / LETTER) - 1
    short = label if len(label) <= fits else f"{label[: fits - 1]}…" if fits > 3 else ""
    y = depth * ROW
    tone = node.frame % 4
    # data-*: what the page's script needs to zoom.
    return (
        f'<g data-x="{x:.2f}" data-w="{width:.2f}" data-l="{escape(label, quote=True)}">'
        f'<rect class="t{tone}" x="{x:.2f}" y="{y}" width="{max(0.2, width - 0.4):.2f}" height="{ROW - 1}">'
        f"<title>{escape(title)}</title></rect>"
        f'<text x="{x + 3:.2f}" y="{y + ROW - 5}">{escape(short)}</text></g>'
    )
