"""One plain screen on standard output, for a pipe or a glance."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from agent.bundle.errors import BundleError
from agent.faces.terminal import Terminal
from agent.state import AgentState
from agent.top.frame import head_line, page_of
from agent.top.look import Look
from agent.top.recording import Recording
from agent.top.seen import Page, Played, Room, Seen, Where
from agent.top.text import Line


def last_of(path: Path) -> Seen:
    """Return the end of a bundle as it is seen; raises :class:`agent.errors.KvtideError` where nothing is in it."""
    recording = Recording(path)
    recording.load()
    found = recording.at(recording.length)
    if found is None:
        raise BundleError(recording.problem or f"{path}: there is no state in it")
    end = recording.length
    return Seen(str(path), *found, played=Played(end, end, speed=1.0, paused=True, loading=False))


def of_state(source: str, state: AgentState) -> Seen:
    """Return a state as it is seen at once."""
    return Seen(source, state, age_seconds=0.0)


def show(seen: Seen, where: Where, look: Look, terminal: Terminal) -> None:
    """Print a view, however long it is; lines are as wide as the terminal."""
    width = terminal.width
    page: Page = page_of(seen, where, Room(width))
    for each in (head_line(seen, width), (), *page.lines):
        terminal.print(_text(each, look), no_wrap=True, overflow="crop")


def _text(spans: Line, look: Look) -> Text:
    return Text.assemble(*((part, look.style(style)) for part, style in spans))
