"""An agent's link without the rest of the agent: a test pulls the levers of real engines by hand.

Runs in the agent environment, on a thread of its own. Orders go the whole way: signed, over the socket, and what the
engine answers comes back.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.state import EngineState, MemberState
from engine_hooks.levers.orders import ActionOrder, ActionResult, Op

T = TypeVar("T")
POLL_SECONDS = 0.02
ANSWER_SECONDS = 60.0
PATIENCE_SECONDS = 120.0
TICK_SECONDS = 0.1


class Orders:
    """Serves the link in ``folder``. ``unasked``: what processes told of their own accord: leases that ran out."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.socket = folder / "agent.sock"
        self.unasked: list[tuple[str, ActionResult]] = []
        self._numbers = itertools.count(1)
        self._answers: dict[tuple[str, str, str], ActionResult] = {}
        self._awaited: set[tuple[str, str, str]] = set()
        self._table = EngineTable(3.0)
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._server: LinkServer | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._up = threading.Event()

    def engine_env(self) -> dict[str, str]:
        """Return what an engine needs in its environment to find this link."""
        return {"KVTIDE_SOCKET": str(self.socket)}

    def engines(self) -> tuple[EngineState, ...]:
        """Return the engines as they are now."""
        return self._on_loop(lambda: self._table.states(time.monotonic(), time.time()))

    def engine(self) -> EngineState:
        """Return the only engine."""
        (engine,) = self.engines()
        return engine

    def frontends(self) -> list[MemberState]:
        """Return the API servers of the only engine."""
        return [member for member in self.engine().members if member.role == "frontend"]

    def wait(self, what: Callable[[], bool], timeout: float = PATIENCE_SECONDS) -> None:
        """Wait until ``what`` holds; raises ``TimeoutError`` with the state."""
        deadline = time.monotonic() + timeout
        while not what():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout} s: {self.engines()}")
            time.sleep(POLL_SECONDS)

    def wait_live(self, timeout: float = PATIENCE_SECONDS) -> EngineState:
        """Wait until one engine is live; return it."""
        self.wait(lambda: [engine.phase for engine in self.engines()] == ["live"], timeout)
        return self.engine()

    def order(
        self,
        op: Op,
        lever: str,
        *,
        action: str = "",
        instance: str = "",
        lease_seconds: float = 30.0,
        **arguments: Any,
    ) -> ActionResult:
        """Give an order to a process (the only engine's core unless told) and return what it answers.

        ``action`` names it; without one it gets a new name.
        """
        order = ActionOrder(
            action=action or f"test-{next(self._numbers)}",
            lever=lever,
            op=op,
            instance=instance or self.engine().instance,
            lease_seconds=lease_seconds,
            valid_seconds=ANSWER_SECONDS,
            arguments=arguments,
        )
        key = (order.instance, order.action, op)
        self._awaited.add(key)
        if not self._on_loop(lambda: self._server is not None and self._server.act(order)):
            raise RuntimeError(f"no process {order.instance} is here")
        deadline = time.monotonic() + ANSWER_SECONDS
        while key not in self._answers:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer to {order}")
            time.sleep(POLL_SECONDS / 4)
        return self._answers.pop(key)

    # -- the loop's thread --------------------------------------------------------------------------------

    def _on_loop(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE_SECONDS)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._server = LinkServer(LinkConfig(socket=self.socket), self._table, heard=self._heard)
        self._server.start()
        self._up.set()
        try:
            while not self._stop.is_set():
                self._server.tick()
                self._table.tick(time.monotonic())
                await asyncio.sleep(TICK_SECONDS)
        finally:
            self._server.close()

    def _heard(self, instance: str, result: ActionResult) -> None:
        # An amendment is answered as the apply or the undo that it was.
        for op in (result.op, "amend"):
            key = (instance, result.action, op)
            if key in self._awaited:
                self._awaited.discard(key)
                self._answers[key] = result
                return
        self.unasked.append((instance, result))

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(PATIENCE_SECONDS):
            raise RuntimeError("the link did not come up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_SECONDS)
        self._loop.close()
