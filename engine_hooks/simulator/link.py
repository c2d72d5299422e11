"""The engine's end of a link that is a pipe: the frames of the real reporter, with the virtual time of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import IO, Any

import msgspec

from engine_hooks import wire
from engine_hooks.auth import KEY_BYTES, Session
from engine_hooks.detail import Detail
from engine_hooks.link import TICK_SECONDS, LinkCallbacks
from engine_hooks.settings import Settings
from engine_hooks.simulator import pipe
from engine_hooks.simulator.clock import VirtualClock
from engine_hooks.wire_types import Message

HURRY_SECONDS = 0.02
_KINDS = {wire.Report: pipe.REPORT, Detail: pipe.DETAIL}


class PipeLink:
    """Stands in for :class:`engine_hooks.link.AgentLink`: nobody to connect to, no thread; :meth:`tick` is its time."""

    def __init__(self, out: IO[bytes], clock: VirtualClock, callbacks: LinkCallbacks, instance: str) -> None:
        self._out = out
        self._clock = clock
        self._callbacks = callbacks
        self._instance = instance
        self.up = False
        self.hurry = False
        self.dropped = 0
        self.state = "starting"
        self.next_tick = 0.0

    def start(self) -> None:
        """Say who the engine is."""
        nonce = bytes(wire.NONCE_BYTES)
        hello = self._callbacks.hello(Session(bytes(KEY_BYTES), nonce, nonce))
        # Not this machine nor this process: the same run is the same wherever it runs.
        hello = msgspec.structs.replace(
            hello, instance=self._instance, engine_id=self._instance, host="simulator", pid=1, pid_namespace=1,
            parent_pid=0, data_parallel=False,
        )  # fmt: skip
        self._put(pipe.HELLO, wire.encode(hello))
        self.up, self.state = True, "connected"
        self._callbacks.connected()
        self.next_tick = self._clock.now

    def send(self, message: Message) -> None:
        """Send a frame."""
        if self.up:
            self._put(_KINDS.get(type(message), pipe.FRAME), wire.encode(message))

    def later(self, errand: Callable[[], object]) -> None:
        """Send it now: there is one thread."""
        errand()

    def tick(self) -> None:
        """Do what the side thread does from time to time."""
        self.next_tick = self._clock.now + (HURRY_SECONDS if self.hurry else TICK_SECONDS)
        message = self._callbacks.tick()
        if message is not None:
            self.send(message)

    def close(self) -> None:
        """The engine is gone."""
        if self.up:
            self.up, self.state = False, "closed"
            self._put(pipe.GONE, b"")

    def _put(self, kind: int, body: bytes) -> None:
        pipe.write(self._out, pipe.Item(self._clock.now, kind, body))


@dataclasses.dataclass(frozen=True, slots=True)
class Links:
    """Makes the links of one run: what the reporter's module calls instead of ``AgentLink``."""

    out: IO[bytes]
    clock: VirtualClock
    instance: Callable[[], str]

    def __call__(self, _settings: Settings, callbacks: LinkCallbacks) -> Any:
        """Return the link of one reporter."""
        return PipeLink(self.out, self.clock, callbacks, self.instance())
