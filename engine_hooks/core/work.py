"""What an engine computes, and how much of that it had computed before.

Per step: a look at the requests that prefill, if any do. Per second: a walk over the running requests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from engine_hooks.core.buckets import PROMPT_TOKENS, REQUEST_SECONDS, Buckets
from engine_hooks.core.growth import SteepestGrowth
from engine_hooks.core.observers import Context, UnsupportedError
from engine_hooks.core.rebuild import MAX_EVICTED, EvictedHashes, Prefill
from engine_hooks.detail import WorkRow
from engine_hooks.names import short_hash

LONG_BLOCKS = 64  # blocks from which on a request counts as long
MAX_FOLLOWED = 65_536  # requests that hold blocks, and preempted ones that wait to compute again
MAX_STEPS = 16  # steps in flight that rebuild something


class WorkObserver:
    """Fills ``work``, where groups differ from the first full-attention group's table."""

    HOOK = "work"
    SECTION = "work"

    def __init__(self, context: Context) -> None:
        managers = context.view.managers
        if not managers:
            raise UnsupportedError("no block tables (req_to_blocks) were found")
        if not hasattr(getattr(context.scheduler, "waiting", None), "peek_request"):
            raise UnsupportedError("the waiting queues of this vLLM have no peek_request")
        full = [manager for manager in managers if type(manager).__name__ == "FullAttentionManager"]
        self._manager = full[0] if full else managers[0]
        self._scheduler = context.scheduler
        self._clock = context.clock
        self._guard = context.guard
        self._block_tokens = int(self._manager.block_size)
        hashed = int(getattr(context.scheduler, "hash_block_size", None) or self._block_tokens)
        self._hashes_per_block = max(1, self._block_tokens // hashed)
        self._prefills: dict[str, tuple[Any, Prefill]] = {}
        self._marks: dict[str, int] = {}
        self._admitted: dict[str, float] = {}
        self._prefilled = 0
        self._rebuilt_preempted = self._rebuilt_evicted = 0
        self._rebuild_seconds = 0.0
        self._rebuilding: deque[tuple[Any, float, float]] = deque(maxlen=MAX_STEPS)  # output, begun at, rebuilt share
        self._last_update = 0.0  # while outputs are listened to
        self._request_seconds = Buckets(REQUEST_SECONDS)
        self._prompt_tokens = Buckets(PROMPT_TOKENS)
        self._growth = SteepestGrowth()
        self._evicted = EvictedHashes()
        self._evicted_keys: deque[Any] = deque(maxlen=MAX_EVICTED)  # not looked at yet
        self._sees_preemptions = hasattr(context.scheduler, "_preempt_request")
        self._take_in_evicted: Callable[[], None] = _nothing
        self._sees_evictions = self._watch_evictions(context.view.pool)
        self._taps = taps = context.taps
        taps.admitted.append(self._admitted_at)
        taps.preempting.append(self._on_preempting)
        taps.preempted.append(self._on_preempted)
        taps.departed.append(self._on_departed)
        taps.given_back.append(self._on_blocks_gone)
        taps.books += [self._prefills, self._marks]
        taps.eventful.append(self._on_scheduled)
        taps.settled.append(self._on_updated)

    def section(self, now: float) -> WorkRow:
        """Return the totals, and what a walk over the running requests shows."""
        self._taps.take_in()
        self._take_in_evicted()
        tables, size = self._manager.req_to_blocks, self._block_tokens
        slots = 0
        long: dict[str, int] = {}
        for request in self._scheduler.running:
            number = len(tables.get(request.request_id, ()))
            slots += max(0, number * size - request.num_computed_tokens)
            if number >= LONG_BLOCKS:
                long[request.request_id] = number
        steepest = self._growth.observe(now, long)
        return WorkRow(
            scheduled_tokens_total=self._taps.tokens,
            prefill_tokens_total=self._prefilled,
            rebuilt_preempted_total=self._rebuilt_preempted if self._sees_preemptions else None,
            rebuilt_evicted_total=self._rebuilt_evicted if self._sees_evictions else None,
            rebuild_seconds_total=self._rebuild_seconds,
            request_seconds=self._request_seconds.row(),
            prompt_tokens=self._prompt_tokens.row(),
            tail_slots=slots,
            steepest_slope=steepest[1] if steepest else None,
            steepest_request=short_hash(steepest[0]) if steepest else "",
        )

    # -- evictions -----------------------------------------------------------------------------------------

    def _watch_evictions(self, pool: Any) -> bool:
        """Remember the hashes that this pool evicts; return whether this vLLM shows them."""
        try:
            from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id
        except ImportError:
            return False
        original: Callable[..., bool] | None = getattr(pool, "_maybe_evict_cached_block", None)
        if original is None or not hasattr(pool.blocks[0], "_block_hash"):
            return False
        note = self._evicted_keys.append

        def evict(block: Any) -> bool:
            # Once for every block that is taken: what can wait is left for later, and nothing here can raise.
            key = block._block_hash
            evicted = original(block)
            if evicted and key is not None:
                note(key)
            return evicted

        pool._maybe_evict_cached_block = evict
        group, add, keys = getattr(self._manager, "kv_cache_group_id", 0), self._evicted.add, self._evicted_keys

        def take_in() -> None:
            while keys:
                key = keys.popleft()
                if get_group_id(key) == group:
                    add(hash(get_block_hash(key)))

        self._take_in_evicted = take_in
        return True

    def _hashes(self, request: Any) -> Sequence[bytes]:
        """The hashes of the request's full blocks, as this group sees them: each stands for all that is before it."""
        per_block = self._hashes_per_block
        hashes: Sequence[bytes] = request.block_hashes
        return hashes if per_block == 1 else hashes[per_block - 1 :: per_block]

    # -- events --------------------------------------------------------------------------------------------

    def _admitted_at(self, request_id: str, at: float, prompt_tokens: int) -> None:
        if prompt_tokens:
            self._prompt_tokens.add(prompt_tokens)
        if len(self._admitted) < MAX_FOLLOWED:
            self._admitted.setdefault(request_id, at)

    def _on_scheduled(self, output: Any) -> None:
        scheduled, rebuilt = output.num_scheduled_tokens, 0
        if self._evicted_keys:
            self._take_in_evicted()
        evicted = len(self._evicted)
        for request in self._taps.admissions:
            key, known = request.request_id, request.num_tokens
            if not evicted and key not in self._marks and key in scheduled and request.num_computed_tokens >= known:
                # All in one step, and nothing of it can have been computed before: most are, while the pool has room.
                self._prefills.pop(key, None)  # of an admission that came to nothing, as one that waits for a transfer
                self._prefilled += max(0, known - request.num_computed_tokens + scheduled[key])
            elif len(self._prefills) < MAX_FOLLOWED:
                self._prefills[key] = (request, Prefill(known, self._marks.get(key, 0)))
        if not self._prefills:
            return
        for key, (request, prefill) in list(self._prefills.items()):
            number = scheduled.get(key)
            if number is None:
                continue
            computed = request.num_computed_tokens
            chunk = prefill.advance(computed, number, self._hashes(request), self._block_tokens, self._evicted)
            self._prefilled += chunk.tokens
            self._rebuilt_preempted += chunk.rebuilt_preempted
            self._rebuilt_evicted += chunk.rebuilt_evicted
            rebuilt += chunk.rebuilt_preempted + chunk.rebuilt_evicted
            if prefill.done(computed):
                del self._prefills[key]
                self._marks.pop(key, None)
        if self._prefills:
            self._taps.attention = True
        if rebuilt:
            self._rebuilding.append((output, self._clock(), rebuilt / output.total_num_scheduled_tokens))
            self._taps.await_update()

    def _on_updated(self, output: Any) -> bool:
        """Add the rebuilt tokens' share of a step: since it was scheduled, or since the step before it ended."""
        now = self._clock()
        for index, (rebuilding, began, share) in enumerate(self._rebuilding):
            if rebuilding is output:
                self._rebuild_seconds += share * (now - max(began, self._last_update))
                del self._rebuilding[index]
                break
        self._last_update = now
        return bool(self._rebuilding)

    def _on_preempting(self, request: Any) -> None:
        key = request.request_id
        self._prefills.pop(key, None)
        if request in self._taps.admissions:
            self._taps.admissions.remove(request)
        if len(self._marks) < MAX_FOLLOWED:
            self._marks[key] = max(self._marks.get(key, 0), request.num_computed_tokens)

    def _on_preempted(self, request: Any) -> None:
        self._taps.later((self._on_blocks_gone,), request.request_id, self._clock())

    def _on_departed(self, request: Any, _outside: tuple[Any, ...], at: float, _entries: int, gone: bool) -> None:
        if gone:
            self._on_blocks_gone(request.request_id, at)

    def _on_blocks_gone(self, request_id: str, at: float) -> None:
        since = self._admitted.pop(request_id, None)
        if since is not None:
            self._request_seconds.add(at - since)


def _nothing() -> None:
    """No evictions are seen here."""
