"""Free what ended requests still hold for a peer that does not come, after the connector itself has given up."""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from typing import Any

from engine_hooks.core.delayed import SEND, lease_of
from engine_hooks.core.levers.arguments import need, only
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

MOST = 4096
MARGIN = 2.0  # times the connector's lease: its workers tell of the end a while after it
_SIGNALS = ("finished_sending", "finished_recving")


class ReclaimDelayed:
    """Arguments: ``age_seconds`` (twice the connector's lease, and never less than that), ``requests`` at most.

    The most dangerous of all: a peer may still read. So: only requests whose KV was to be sent (one that was to be
    received may still be written by the network, into blocks that are somebody else's by then), only with one connector
    that says when it gives up, holds no references of its own, and only long after that. Should its workers
    still tell of the end of such a transfer, which would kill the engine, that is taken out of what they tell, from the
    first use on for good.
    """

    NAME = "reclaim_delayed"

    def __init__(self, context: LeverContext) -> None:
        scheduler = context.scheduler
        connector = getattr(scheduler, "connector", None)
        if connector is None:
            raise RefusedError("unsupported", "without a connector no free is delayed")
        need(scheduler, "_free_blocks", "_update_from_kv_xfer_finished")
        lease = lease_of(connector)
        if lease is None:
            raise RefusedError("unsupported", f"{type(connector).__name__} does not say when it gives up on a peer")
        delayed: Any = context.observers.get("delayed")
        need(delayed, "kept")
        self._lease, self._delayed = lease, delayed
        self._scheduler, self._view, self._now = scheduler, context.view, context.now
        self._reclaimed: OrderedDict[str, None] | None = None

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return the requests and their table entries that would be let go."""
        found = self._found(arguments)
        return {"requests": len(found), "entries": sum(map(self._entries, found))}

    def apply(self, arguments: Arguments) -> Done:
        """Let them go; there is no way back."""
        found = self._found(arguments)
        pool, before = self._view.pool, int(self._view.pool.get_num_free_blocks())
        entries = sum(map(self._entries, found))
        self._swallow(found)
        for request_id in found:
            self._scheduler._free_blocks(self._scheduler.requests[request_id])
        return Done(
            {
                "requests": len(found),
                "entries": entries,
                "before_free_blocks": before,
                "after_free_blocks": int(pool.get_num_free_blocks()),
            }
        )

    def _found(self, arguments: Arguments) -> list[str]:
        only(arguments, "age_seconds", "requests")
        least = MARGIN * self._lease
        age = number(arguments, "age_seconds", least, 86_400.0 + least, least)
        most = whole(arguments, "requests", 1, MOST, MOST)
        if self._view.unknown_pinners or not self._view.nothing_pinned():
            raise RefusedError("unsafe", "a connector holds blocks of its own: a transfer is under way")
        now, requests = self._now(), self._scheduler.requests
        found = [
            request_id
            for request_id, kept in self._delayed.kept().items()
            if kept.direction == SEND
            and now - kept.since >= age
            and (request := requests.get(request_id)) is not None
            and request.is_finished()
        ]
        if not found:
            raise RefusedError("nothing", f"no request that was to be sent has waited for {age:g} s")
        return found[:most]

    def _entries(self, request_id: str) -> int:
        return sum(len(manager.req_to_blocks.get(request_id) or ()) for manager in self._view.managers)

    def _swallow(self, found: list[str]) -> None:
        """From now on keep late signals about these from the scheduler, which asserts that it knows each."""
        if self._reclaimed is None:
            reclaimed: OrderedDict[str, None] = OrderedDict()
            self._reclaimed = reclaimed
            scheduler, original = self._scheduler, self._scheduler._update_from_kv_xfer_finished

            @functools.wraps(original)
            def update(output: Any, *args: Any, **kwargs: Any) -> Any:
                late = {one for name in _SIGNALS for one in getattr(output, name, None) or () if one in reclaimed}
                late.difference_update(scheduler.requests)
                if late:
                    output = copy.copy(output)
                    for name in _SIGNALS:
                        setattr(output, name, {one for one in getattr(output, name, None) or () if one not in late})
                return original(output, *args, **kwargs)

            scheduler._update_from_kv_xfer_finished = update
        self._reclaimed.update(dict.fromkeys(found))
        while len(self._reclaimed) > MOST:
            self._reclaimed.popitem(last=False)
