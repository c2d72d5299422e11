"""The encoder cache: what its entries hold, and which of them are held for nobody.

vLLM's ``EncoderCacheManager`` keeps a set of request ids per entry. An entry is orphaned when none of them is a request
that the scheduler still works on: it can't be evicted any more. An id may come again, and then it is another request
that has never asked for the entry: who asked is noted here. Connectors for encoder outputs (``ec_connector``) have
no access to these books and keep memory of their own; what they may delay is a request's KV blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any
from weakref import ref

from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.detail import EncoderRow

MANAGERS = "vllm.v1.core.encoder_cache_manager"
NEEDED = ("cached", "freeable", "cache_size", "num_free_slots", "num_freeable_slots", "allocate")
MAX_LOOKED_AT = 1024  # entries in one section; a larger cache is looked at in turns
MAX_ORPHANS = 1024  # entries followed as orphans; there may be more


class EncoderObserver:
    """Fills ``encoder``. An orphan is said when two looks, a section apart, have found it."""

    HOOK = "encoder"
    SECTION = "encoder"

    def __init__(self, context: Context) -> None:
        self._scheduler = context.scheduler
        self._guard = context.guard
        self._manager = self._probe()
        self._sizes: dict[str, int] = {}  # tokens by entry: not every vLLM keeps them
        self._looks: dict[str, int] = {}  # entries that look orphaned: how often they did
        self._turn = 0  # index of the next entry to look at
        self._asked: dict[tuple[str, str], ref[Any]] = {}  # the request by entry and request id, as it is in the books
        self._most_asked = MAX_LOOKED_AT
        self._manager.allocate = self._measured(self._manager.allocate)
        if hasattr(self._manager, "check_and_update_cache"):
            self._manager.check_and_update_cache = self._noted(self._manager.check_and_update_cache)

    def _probe(self) -> Any:
        manager: Any = getattr(self._scheduler, "encoder_cache_manager", None)
        kind = type(manager)
        if not getattr(manager, "cache_size", 0):
            raise UnsupportedError("this model has no encoder")
        if kind.__module__ != MANAGERS:
            raise UnsupportedError(f"{kind.__name__} is not vLLM's own encoder cache and may hold entries for others")
        missing = [name for name in NEEDED if not hasattr(manager, name)]
        if missing:
            raise UnsupportedError(f"{kind.__name__} has no {missing[0]}: it keeps no references")
        return manager

    def _measured(self, allocate: Callable[..., Any]) -> Callable[..., Any]:
        manager = self._manager

        def measured(request: Any, input_id: int, *args: Any, **kwargs: Any) -> Any:
            before = manager.num_free_slots
            result = allocate(request, input_id, *args, **kwargs)
            self._guard.run(self.HOOK, self._keep_size, request, input_id, before - manager.num_free_slots)
            return result

        return measured

    def _noted(self, check: Callable[..., bool]) -> Callable[..., bool]:
        def noted(request: Any, input_id: int, *args: Any, **kwargs: Any) -> bool:
            hit = check(request, input_id, *args, **kwargs)
            if hit:
                self._guard.run(self.HOOK, self._keep_holder, request, input_id)
            return hit

        return noted

    def _keep_size(self, request: Any, input_id: int, tokens: int) -> None:
        self._sizes[request.mm_features[input_id].identifier] = tokens
        cached = self._manager.cached
        if len(self._sizes) > 2 * len(cached) + MAX_LOOKED_AT:
            self._sizes = {entry: size for entry, size in self._sizes.items() if entry in cached}
        self._keep_holder(request, input_id)

    def _keep_holder(self, request: Any, input_id: int) -> None:
        self._asked[request.mm_features[input_id].identifier, request.request_id] = ref(request)
        if len(self._asked) > self._most_asked:
            cached = self._manager.cached
            self._asked = {key: known for key, known in self._asked.items() if key[1] in cached.get(key[0], ())}
            self._most_asked = 2 * len(self._asked) + MAX_LOOKED_AT

    def section(self, now: float) -> EncoderRow:
        """Return the cache's row; at most some thousand entries are looked at."""
        manager = self._manager
        self._look()
        orphans = [entry for entry, looks in self._looks.items() if looks > 1]
        return EncoderRow(
            capacity=int(manager.cache_size),
            held=int(manager.cache_size - manager.num_freeable_slots),
            freeable=int(manager.num_freeable_slots - manager.num_free_slots),
            entries=len(manager.cached),
            orphaned_entries=len(orphans),
            orphaned_tokens=sum(self._sizes.get(entry, 0) for entry in orphans),
        )

    def _look(self) -> None:
        cached = self._manager.cached
        # What was found before is looked at each time, the others in turns.
        looks = {entry: n + 1 for entry, n in self._looks.items() if self._held_for_nobody(entry, cached.get(entry))}
        turn = list(islice(cached.items(), self._turn, self._turn + MAX_LOOKED_AT))
        self._turn = self._turn + MAX_LOOKED_AT if len(turn) == MAX_LOOKED_AT else 0
        for entry, holders in turn:
            if len(looks) < MAX_ORPHANS and entry not in looks and self._held_for_nobody(entry, holders):
                looks[entry] = 1
        self._looks = looks

    def _held_for_nobody(self, entry: str, holders: set[str] | None) -> bool:
        """Whether requests hold this entry, and none of them lives. A finished one whose blocks a connector still
        needs has let its entries go when it finished.
        """
        find = self._scheduler.requests.get
        for holder in holders or ():
            request = find(holder)
            if request is not None and not request.is_finished():
                asked = self._asked.get((entry, holder))
                if asked is None or asked() is request:
                    return False
        return bool(holders)
