"""The terminal: what is printed there comes from files, drivers and other processes, and must not steer it."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from agent.plain import plain_lines


class Terminal(Console):
    """A console that shows no control characters but its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of ``renderable``, their text made harmless."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain_lines(segment.text), segment.style)
