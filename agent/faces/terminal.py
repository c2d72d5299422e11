"""The terminal: what is printed there comes from files, drivers and other processes, and must not steer it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agent.plain import plain_lines

LEAST_COLUMNS = 80  # that a report needs


def for_reports() -> Terminal:
    """Return a terminal for what is printed once. A narrower one wraps the lines: cut numbers would be wrong ones."""
    terminal = Terminal()
    terminal.width = max(LEAST_COLUMNS, terminal.width)
    return terminal


class Terminal(Console):
    """A console that shows no control characters but its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of ``renderable``, their text made harmless."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain_lines(segment.text), segment.style)
