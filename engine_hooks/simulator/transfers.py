"""What connectors' workers and peers do: they take a while to fetch and to send, and sometimes they never answer."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from typing import Any

from engine_hooks.simulator.core import SimulatedCore

SEND_SECONDS, LOAD_SECONDS, PIN_SECONDS = (0.3, 1.5), (0.2, 1.2), (0.5, 2.0)
DECODED_ELSEWHERE, PREFILLED_ELSEWHERE = 0.3, 0.3  # shares of the requests
PINNED_BLOCKS = 4  # of a request that has ended, while they are written elsewhere
PEERS = ("peer-0", "peer-1", "peer-2")


def transfer_params(draw: random.Random) -> dict[str, Any] | None:
    """Return the transfer parameters of the next request; None for one that is served here alone."""
    chance = draw.random()
    peer = draw.choice(PEERS)
    if chance < DECODED_ELSEWHERE:
        return {"do_remote_decode": True, "do_remote_prefill": False, "remote_host": peer}
    if chance < DECODED_ELSEWHERE + PREFILLED_ELSEWHERE:
        return {"do_remote_decode": False, "do_remote_prefill": True, "remote_engine_id": peer}
    return None


class Transfers:
    """The transfers of one engine. ``loses_signal(request)`` and ``forgets_pin(blocks)`` are asked whether this one
    goes wrong; ``lease_works``: whether the connector gives up on a peer after its lease.
    """

    def __init__(self, core: SimulatedCore, draw: random.Random, now: Callable[[], float]) -> None:
        self._core = core
        self._draw = draw
        self._now = now
        self._numbers = count()
        self._due: list[tuple[float, int, str, Any]] = []
        self.loading: dict[str, Any] = {}
        self.loses_signal: list[Callable[[Any], bool]] = []
        self.forgets_pin: list[Callable[[list[Any]], bool]] = []
        connector = core.scheduler.connector
        if hasattr(connector, "kept"):
            connector.lease(core.engine.lease_seconds)
            connector.kept, connector.loading = self._kept, self._loads
        elif hasattr(connector, "finishing"):
            connector.finishing = self._pin

    def tick(self) -> None:
        """Let what is due come to its end."""
        now, requests = self._now(), self._core.scheduler.requests
        while self._due and self._due[0][0] <= now:
            _, _, what, subject = heapq.heappop(self._due)
            if what == "unpin":
                self._core.scheduler.connector.pool.free_blocks(reversed(subject))
            elif requests.get(subject.request_id) is subject:
                ended = self._core.worker.sent if what == "sent" else self._core.worker.received
                ended.add(subject.request_id)
            if what == "received":
                self.loading.pop(subject.request_id, None)

    def lose(self, request: Any) -> None:
        """Nobody will ever say that this request's KV has come."""
        self.loading.pop(request.request_id, None)
        self._due = [entry for entry in self._due if entry[3] is not request]
        heapq.heapify(self._due)

    def _kept(self, request: Any) -> None:
        if any(loses(request) for loses in self.loses_signal):
            return
        self._later(self._draw.uniform(*SEND_SECONDS), "sent", request)

    def give_up_later(self, request: Any) -> None:
        """The peer never answers, and the connector's lease ends the wait."""
        self._later(self._core.engine.lease_seconds or 0.0, "sent", request)

    def _loads(self, request: Any) -> None:
        self.loading[request.request_id] = request
        self._later(self._draw.uniform(*LOAD_SECONDS), "received", request)

    def _pin(self, request: Any) -> None:
        scheduler = self._core.scheduler
        tables = scheduler.kv_cache_manager.coordinator.single_type_managers
        blocks = [block for block in tables[0].req_to_blocks.get(request.request_id, ()) if block.ref_cnt == 1]
        blocks = blocks[:PINNED_BLOCKS]
        if not blocks:
            return
        scheduler.connector.pool.touch(blocks)
        if not any(forgets(blocks) for forgets in self.forgets_pin):
            self._later(self._draw.uniform(*PIN_SECONDS), "unpin", blocks)

    def _later(self, seconds: float, what: str, subject: Any) -> None:
        heapq.heappush(self._due, (self._now() + seconds, next(self._numbers), what, subject))
