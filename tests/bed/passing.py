"""Engines that come and go: real links of the hooks to a real agent, each for a moment, each a new life of its name."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.link import AgentLink, LinkCallbacks
from engine_hooks.settings import Settings
from tests.unit.builders import make_hello, make_report


@dataclass(slots=True)
class PassingEngine:
    """One life of an engine, in this process; reports while it is connected. ``reports``: how many it has sent."""

    socket: Path
    name: str
    instance: str
    reports: int = 0
    link: AgentLink = field(init=False)
    _numbers: itertools.count[int] = field(init=False)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        uids = frozenset({os.geteuid()})
        key = self.socket.with_name(wire.KEY_NAME)
        settings = Settings(enabled=True, socket=self.socket, key_file=key, agent_uids=uids, engine_name=None)
        self.link = AgentLink(settings, LinkCallbacks(self._hello, lambda _order: None, self._report, lambda: None))
        self.link.start()

    def _hello(self, session: Session) -> wire.Hello:
        mac = session.engine_proof()
        return make_hello(name=self.name, instance=self.instance, engine_id=self.instance, pid=os.getpid(), mac=mac)

    def _report(self) -> wire.Report | None:
        if not self.link.up:
            return None
        self.reports += 1
        return make_report(sequence=next(self._numbers), monotonic=time.monotonic())

    def close(self) -> None:
        """End this life."""
        self.link.close()


class Passing:
    """``names`` engines; every ``seconds`` one of them ends and begins its next life. Use it with ``with``."""

    def __init__(self, socket: Path, names: int = 8, seconds: float = 0.5) -> None:
        self.lives = 0
        self._socket, self._names, self._seconds = socket, names, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="passing")

    def _run(self) -> None:
        living: dict[int, PassingEngine] = {}
        for number in itertools.cycle(range(self._names)):
            if number in living:
                living.pop(number).close()
            self.lives += 1
            living[number] = PassingEngine(self._socket, f"passing-{number}", f"life-{self.lives}")
            if self._stop.wait(self._seconds):
                break
        for engine in living.values():
            engine.close()

    def __enter__(self) -> Passing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
