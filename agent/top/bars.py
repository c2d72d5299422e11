"""Bars and sparklines. Letters and heights say what there is; colours only repeat it."""

from __future__ import annotations

from collections.abc import Sequence

from agent.faces.lines import BAD
from agent.faces.waterfall import UNATTRIBUTED, WORDS
from agent.state import PoolState
from agent.top.text import Line
from agent.waterfall.build import summed
from agent.waterfall.state import Waterfall

HEIGHTS = "▁▂▃▄▅▆▇█"
NOTHING = "·"  # no value at that moment
# What of a KV pool is drawn, in this order: letter, word, colour. The parts do not overlap.
POOL = (
    ("L", "orphaned", BAD),
    ("#", "held", "#0072b2"),
    ("+", "cached idle", "#56b4e9"),
    (".", "empty", "grey50"),
)


def bar(sizes: Sequence[tuple[str, str, int]], whole: int, cells: int) -> Line:
    """Return letters to scale, by letter, colour and size: whatever is above zero has a cell at least.

    The largest pays for that. What the sizes leave of ``whole`` stays blank.
    """
    whole = max(whole, sum(size for *_, size in sizes))
    if whole <= 0 or cells <= 0:
        return ((" " * max(0, cells), ""),)
    numbers = [max(1, round(cells * size / whole)) if size > 0 else 0 for *_, size in sizes]
    while sum(numbers) > cells:
        largest = max(range(len(numbers)), key=lambda place: numbers[place])
        numbers[largest] -= 1
    drawn = [(letter * number, colour) for (letter, colour, _), number in zip(sizes, numbers, strict=True) if number]
    return (*drawn, (" " * (cells - sum(numbers)), ""))


def of_pool(pool: PoolState, cells: int) -> Line:
    """Return a KV pool as a bar; what is not known of it stays blank."""
    leaked = min(max(0, pool.orphaned or 0), pool.held)
    counts = (leaked, pool.held - leaked, pool.cached_idle or 0, pool.empty or 0)
    sizes = [(letter, colour, count) for (letter, _, colour), count in zip(POOL, counts, strict=True)]
    return bar(sizes, pool.capacity, cells)


def of_waterfall(found: Waterfall, cells: int) -> Line:
    """Return a GPU's waterfall as a bar, in the order of ``kvtide status --waterfall``."""
    order = list(WORDS)
    sizes: dict[tuple[str, str], int] = {}
    for part in sorted(summed(found.parts), key=lambda each: order.index(each.part)):
        look = WORDS[part.part][1:]
        sizes[look] = sizes.get(look, 0) + part.bytes
    sizes[UNATTRIBUTED[1:]] = max(0, found.unattributed_bytes or 0)
    drawn = [(letter, colour, size) for (letter, colour), size in sizes.items()]
    return bar(drawn, found.total_bytes or 0, cells)


def legend(waterfalls: Sequence[Waterfall]) -> list[tuple[str, str, str]]:
    """Return letter, word and colour of what is drawn, in the order of the bars."""
    present = {part.part for each in waterfalls for part in each.parts if part.bytes}
    found = {letter: (letter, word, colour) for name, (word, letter, colour) in WORDS.items() if name in present}
    if any(each.unattributed_bytes for each in waterfalls):
        word, letter, colour = UNATTRIBUTED
        found[letter] = (letter, word, colour)
    return list(found.values())


def spark(values: Sequence[float | None], cells: int, low: float, high: float) -> str:
    """Return the last values as heights between ``low`` and ``high``, the newest at the right edge."""
    shown = values[-cells:] if cells > 0 else ()
    span = high - low
    drawn = ""
    for value in shown:
        if value is None:
            drawn += NOTHING
        else:
            share = (value - low) / span if span > 0 else 0.0
            drawn += HEIGHTS[min(len(HEIGHTS) - 1, max(0, int(share * len(HEIGHTS))))]
    return drawn.rjust(cells)
