"""The terminal program: shows the desk's rows, hands it the keys. All that is drawn comes from frame.py."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import ClassVar, Protocol

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from agent.plain import plain
from agent.top.desk import Desk
from agent.top.frame import Row
from agent.top.look import Look
from agent.top.seen import Seen, Where


class Source(Protocol):
    """Where states come from: an agent or a recording."""

    period: float  # seconds between two looks where nothing arrives: ages go on, and an agent that hangs is told

    def start(self, arrived: Callable[[], None]) -> None:
        """Begin; ``arrived`` may be called from another thread whenever there is something new."""
        ...

    def stop(self) -> None:
        """End, without waiting for anything."""
        ...

    def seen(self) -> Seen:
        """Return what is seen now; does not block."""
        ...

    def seek(self, seconds: float) -> None:
        """Go to another moment, where that can be."""
        ...

    def pause(self) -> None:
        """Hold, or go on."""
        ...

    def faster(self, factor: float) -> None:
        """Play faster, where that can be."""
        ...


class Arrived(Message):
    """There is something new to see."""


class Sheet(Widget, can_focus=True):
    """Shows rows; draws only those that have changed."""

    DEFAULT_CSS = "Sheet { width: 1fr; height: 1fr; }"

    def __init__(self, look: Look) -> None:
        super().__init__()
        self._look = look
        self._rows: list[Row] = []
        self._styles: dict[tuple[str, bool], Style] = {}

    def show(self, rows: list[Row]) -> None:
        """Take the rows of now."""
        before, self._rows = self._rows, rows
        if len(before) != len(rows):
            self.refresh()
            return
        changed = [
            Region(0, y, self.size.width, 1)
            for y, (old, new) in enumerate(zip(before, rows, strict=True))
            if old != new
        ]
        if changed:
            self.refresh(*changed)

    def render_line(self, y: int) -> Strip:
        """Return one line of the screen."""
        width = self.size.width
        if y >= len(self._rows):
            return Strip.blank(width)
        row = self._rows[y]
        segments = [Segment(plain(text), self._style(name, row.stale)) for text, name in row.line]
        return Strip(segments).adjust_cell_length(width)

    def text(self) -> list[str]:
        """Return what is on the screen as plain lines."""
        return [self.render_line(y).text.rstrip() for y in range(self.size.height)]

    def _style(self, name: str, stale: bool) -> Style:
        found = self._styles.get((name, stale))
        if found is None:
            found = self._styles[name, stale] = Style.parse(self._look.style(name, stale=stale))
        return found


class Top(App[None]):
    """One screen on ``source``. The mouse is left to the terminal, so that text can be selected and copied."""

    CSS = "Screen { background: ansi_default; color: ansi_default; }"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, f"press({key!r})", show=False, priority=True) for key in ("ctrl+c", "tab", "shift+tab", "ctrl+q")
    ]

    def __init__(self, source: Source, look: Look, where: Where | None = None) -> None:
        super().__init__(ansi_color=True)
        self._source = source
        self.desk = Desk(where or Where(), seek=source.seek, pause=source.pause, faster=source.faster, leave=self.exit)
        self.sheet = Sheet(look)

    def compose(self) -> ComposeResult:
        """The only widget."""
        yield self.sheet

    def on_mount(self) -> None:
        """Show a first screen before anything is asked; then begin."""
        self.sheet.focus()
        self.draw()
        self.set_interval(self._source.period, self.draw)
        self.call_after_refresh(self._source.start, self._tell)

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the program ended meanwhile
            self.post_message(Arrived())

    def on_arrived(self) -> None:
        """Something new came."""
        self.draw()

    def on_resize(self, _event: events.Resize) -> None:
        """The terminal has another size."""
        self.draw()

    def on_key(self, event: events.Key) -> None:
        """Any key."""
        event.stop()
        self.action_press(event.key, event.character)

    def action_press(self, key: str, character: str | None = None) -> None:
        """Take a key, and show what it came to."""
        self.desk.press("q" if key == "ctrl+q" and self.desk.prompt is None else key, character)
        self.draw()

    def on_unmount(self) -> None:
        """End."""
        self._source.stop()

    def draw(self) -> None:
        """Show what is seen now."""
        if self.is_running:
            self.sheet.show(self.desk.rows(self._source.seen(), (self.size.width, self.size.height)))
