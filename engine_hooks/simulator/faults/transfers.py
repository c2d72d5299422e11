"""Blocks that are kept for somebody who never answers."""

from __future__ import annotations

from typing import Any

from engine_hooks.simulator.core import ABORT, SimulatedCore
from engine_hooks.simulator.faults.base import Leak, tables_of, tenant_of


class DelayedFree(Leak):
    """The peer never says that it has read a finished request's blocks, and the lease does not end the wait either."""

    VERDICT = "kv_delayed_free"
    RATE = 60.0

    def ready(self, core: SimulatedCore) -> None:
        """See :class:`Plant`."""
        transfers = self.world.transfers
        if transfers is not None:
            transfers.loses_signal.append(lambda request: self._loses(core, request))

    def _loses(self, core: SimulatedCore, request: Any) -> bool:
        if not self.due() or not self.concerns(request):
            return False
        self.took(len(tables_of(core)[0].req_to_blocks.get(request.request_id, ())), tenant_of(request))
        return True


class AbortLoading(Leak):
    """A client goes away while its request's KV is loaded; that it has come is never said, so it is never let go."""

    VERDICT = "kv_delayed_free"
    RATE = 60.0

    def tick(self) -> None:
        """See :class:`Plant`."""
        super().tick()
        transfers, core = self.world.transfers, self.world.core
        if transfers is None or core is None or not self.due():
            return
        for key, request in list(transfers.loading.items()):
            if self.due() and self.concerns(request) and not request.is_finished():
                blocks = len(tables_of(core)[0].req_to_blocks.get(key, ()))
                transfers.lose(request)
                core.input_queue.put_nowait((ABORT, [key]))
                self.took(blocks, tenant_of(request))


class UnknownPin(Leak):
    """A connector that nobody knows pins blocks, and does not let go of them."""

    VERDICT = "kv_pinned"

    def ready(self, core: SimulatedCore) -> None:
        """See :class:`Plant`."""
        if self.world.transfers is not None:
            self.world.transfers.forgets_pin.append(self._forgets)

    def _forgets(self, blocks: list[Any]) -> bool:
        if self.due() < len(blocks):
            return False
        self.took(len(blocks))
        return True
