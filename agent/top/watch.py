"""Runs the program on a terminal: a first screen at once, then what takes longer to come.

Textual is most of the time of a start. The first screen is written before it is imported, and the agent is asked
meanwhile.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agent.errors import ConfigError
from agent.top.asked import AgentSource
from agent.top.desk import Desk
from agent.top.first import first_screen
from agent.top.history import Who
from agent.top.look import Look
from agent.top.past import Tides
from agent.top.seen import View, Where

if TYPE_CHECKING:
    from agent.top.app import Source


def watch(
    url: str,
    *,
    replay: Path | None = None,
    speed: float = 1.0,
    view: View = "node",
    engine: str | None = None,
    mono: bool = False,
) -> None:
    """Show the agent at ``url``, or the bundle, until the person leaves.

    Raises :class:`ConfigError` without a terminal, :class:`agent.errors.KvtideError` for what is no bundle.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("kvtide top needs a terminal; --once prints one screen, --json the state")
    source: Source
    if replay is not None:
        from agent.top.played import BundleSource

        source = BundleSource(replay, speed)
    else:
        source = asking(url)
        source.ask()
    where = where_of(view, engine)
    width, height = os.get_terminal_size()
    with first_screen(Desk(where).rows(source.seen(), (width, height))):
        from agent.top.app import Top

        app = Top(source, Look(mono), where)
    app.run(mouse=False)


def asking(url: str) -> AgentSource:
    """Return the source that asks the agent at ``url``; its client is imported on the thread that asks."""

    def opening():  # type: ignore[no-untyped-def]
        from agent.cli.client import AgentClient

        return AgentClient(url).state

    def past() -> Tides:
        from agent.cli.client import AgentClient

        return AgentClient(url).tides()

    return AgentSource(url, opening, past)


def where_of(view: View, engine: str | None) -> Where:
    """Return where the person begins to look."""
    return Where(view=view, engine=None if engine is None else Who(engine, hooked=True))
