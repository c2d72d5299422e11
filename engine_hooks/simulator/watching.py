"""The real hooks on a simulated engine: attached as to any other, but for their link and the clock of their audits.

Imported once time is virtual: the hooks take its functions over when they are imported.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from engine_hooks.core.reporter import EngineReporter
from engine_hooks.own_memory import OwnMemory
from engine_hooks.settings import Settings
from engine_hooks.simulator.clock import VirtualClock
from engine_hooks.simulator.core import SimulatedCore
from engine_hooks.simulator.link import Links, PipeLink
from engine_hooks.wire import DEFAULT_SOCKET, KEY_NAME

_hook: Any = importlib.import_module("engine_hooks.core.hook")
_reporter: Any = importlib.import_module("engine_hooks.core.reporter")


class NoMemory(OwnMemory):
    """A simulated engine has none of its own: this process's is not its, and differs from run to run."""

    def fresh(self, now: float) -> None:
        """See :class:`OwnMemory`."""


def watch(core: SimulatedCore, links: Links, clock: VirtualClock) -> PipeLink:
    """Attach the hooks to ``core``, and return their link."""
    engine, socket = core.engine, Path(DEFAULT_SOCKET)
    settings = Settings(
        enabled=True,
        socket=socket,  # never opened: the link is a pipe
        key_file=socket.with_name(KEY_NAME),
        agent_uids=frozenset(),
        engine_name=engine.name,
        pin_seconds=engine.pin_seconds,
        plain_request_ids=True,
    )
    # A step stands for so many of a GPU's, and audits get a slice of each of those.
    working = clock.working(1.0 / engine.step_output)

    class Reporter(EngineReporter):
        """The real one; its audits pass the time that they take, although no other code does."""

        def start(self) -> None:
            """See :class:`EngineReporter`."""
            for accounts in (self._accounts.main, *self._accounts.others):
                accounts._clock = working
            self._memory = NoMemory()
            super().start()

    kept = _reporter.AgentLink, _hook.EngineReporter
    _reporter.AgentLink, _hook.EngineReporter = links, Reporter
    try:
        link: PipeLink = _hook.attach(core, settings)._link
    finally:
        _reporter.AgentLink, _hook.EngineReporter = kept
    return link
