"""An engine's detail as a compact block: one line per thing that there is to say."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.faces import kept, load
from agent.faces.lines import Line
from engine_hooks.detail import Detail


def block(detail: Detail, peers: Mapping[str, str]) -> RenderableType | None:
    """Return the block, or None when there is nothing to say. ``peers``: engines that are ours, by what others call them."""
    lines = [*kept.lines(detail, peers), *load.lines(detail)]
    if detail.unsupported:
        lines.append(Line("not told", f"{', '.join(sorted(detail.unsupported))} (why: kvtide status --json)", "dim"))
    if not lines:
        return None
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    previous = ""
    for label, text, style in lines:
        # Text, for a plain string would be read as rich markup.
        shown = Text(text, style=style) if isinstance(text, str) else text
        grid.add_row(Text("" if label == previous else label, style="bold"), shown)
        previous = label
    return grid
