"""How much memory the hooks hold in an engine once all their books are full; and the same again after as much again.

``python -m tests.bed.hook_memory`` measures it, in the engine environment, on a scheduler that all hooks watch:
everything that is allocated in the process, less what the same scheduler has without hooks. So what vLLM has made and
the hooks keep alive (requests' ids) counts as well. What follows requests that the engine holds now (tables of who
runs, waits, or keeps blocks for a connector) is as large as those, and no book. It ends with 1 above the ceiling.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from engine_hooks.core.rebuild import EvictedHashes

CEILING_MIB = 22.0  # seen: 20.2 with books of full size, after each of five fills but the first
MIB = 1 << 20
BLOCKS, BLOCK_TOKENS = 12_000, 16
LEAKED = 9_000  # blocks: more than the audit names
LONG_BLOCKS = 120  # of a request that pushes so many others out of the cache
AT_ONCE = 16
LOOKS = 3


@dataclass(frozen=True, slots=True)
class Held:
    """MiB that the hooks hold: ``once`` when all books are full, ``twice`` after as much again; and how many entries
    each book has then, by name.
    """

    once: float
    twice: float
    entries: dict[str, int]


class Brim:
    """An engine that is nothing but its scheduler. ``hooked``: with all hooks, as they are without an agent.

    ``scale``: books have so many times less room than they have in earnest, and so much less is done.
    """

    def __init__(self, folder: Path, scale: int, *, hooked: bool) -> None:
        from engine_hooks.core.reporter import EngineReporter
        from engine_hooks.settings import Settings
        from tests.bed.scheduler import BareEngine, make_scheduler

        self.scheduler = make_scheduler(BLOCKS // scale, BLOCK_TOKENS)
        self.reporter: EngineReporter | None = None
        self._scale = scale
        self._number = 0
        if hooked:
            self._engine = BareEngine(scheduler=self.scheduler, vllm_config=self.scheduler.vllm_config)
            settings = Settings.from_environment({"KVTIDE_SOCKET": str(folder / "nobody.sock")})
            self.reporter = EngineReporter(self._engine, settings, None)
            self.reporter.start()
        self.scheduler.kv_cache_manager.block_pool.get_new_blocks(LEAKED // scale)

    def fill(self, share: float = 1.0) -> None:
        """Do what fills every book, or that ``share`` of it."""
        from engine_hooks.core import endings
        from engine_hooks.core.rebuild import MAX_EVICTED

        # A pool's worth more: what is taken before the cache is full had no hash.
        self.serve(int(share * (MAX_EVICTED + BLOCKS) / LONG_BLOCKS / self._scale), LONG_BLOCKS * BLOCK_TOKENS)
        self.serve(int(share * endings.MAX_REMEMBERED), 1)
        if self.reporter is not None:
            book = self.reporter._observers["leaks"]._endings  # type: ignore[attr-defined]
            book._unreturned(next(reversed(book.by_request)), tuple(range(endings.MAX_CAUGHT)))
            self._look()
            self._evict()

    def serve(self, requests: int, tokens: int) -> None:
        """Have so many requests come and be cut after their first token, each of a tenant and a session of its own."""
        from vllm.v1.request import RequestStatus

        from engine_hooks.core.endings import MAX_ID
        from engine_hooks.names import MAX_NAME
        from tests.bed.scheduler import step
        from tests.engine.tenants import make

        first, self._number = self._number, self._number + requests
        room = (BLOCKS - LEAKED) // self._scale * BLOCK_TOKENS
        at_once = max(1, min(AT_ONCE, room // (tokens + BLOCK_TOKENS)))  # none of them waits for another's blocks
        for start in range(first, first + requests, at_once):
            ids = []
            for number in range(start, min(start + at_once, first + requests)):
                tenant, session = (f"{kind}{number}".ljust(MAX_NAME, "x") for kind in ("tenant", "session"))
                request = make(number, tenant, session, ntok=tokens)
                request.request_id = f"id{number}".ljust(MAX_ID, "x")
                self.scheduler.add_request(request)
                ids.append(request.request_id)
            while any(self.scheduler.requests[each].num_output_tokens == 0 for each in ids):
                began = time.perf_counter()
                step(self.scheduler)
                if self.reporter is not None:
                    self.reporter.after_step(began)
            self.scheduler.finish_requests(ids, RequestStatus.FINISHED_ABORTED)
            step(self.scheduler)  # the model's runner hears of what has ended
            if self.reporter is not None:
                self.reporter.on_wake()

    def _look(self) -> None:
        """Have the audit name what leaks, and all observers tell what they have."""
        assert self.reporter is not None
        for _ in range(LOOKS):
            self.reporter._accounts.request_audit()
            self.reporter.on_wake()
            while self.reporter._audit_wants_more:
                self.reporter.on_wake()
        for observer in self.reporter._observers.values():
            section = observer.section(time.monotonic())
            if isinstance(section, Iterator):
                for _ in section:
                    pass
        if self.reporter._guard.errors:
            raise RuntimeError(f"hooks have raised: {self.reporter._guard.errors}")

    def _evict(self) -> None:
        """Bring the book of evicted hashes to where it is largest: with the next one it forgets half of them."""
        assert self.reporter is not None
        book: EvictedHashes = self.reporter._observers["work"]._evicted  # type: ignore[attr-defined]
        for number in count():
            if len(book) >= 2 * book._half - 1:
                return
            book.add(hash((self._number, number)))

    def entries(self) -> dict[str, int]:
        """Return how many entries each book has."""
        assert self.reporter is not None
        observers: dict[str, Any] = dict(self.reporter._observers)
        audit = self.reporter._accounts.audit
        assert audit is not None
        return {
            "ended": len(observers["leaks"]._endings.by_request),
            "caught": len(observers["leaks"]._endings.caught),
            "sessions": len(observers["tenants"].sessions._idle),
            "evicted": len(observers["work"]._evicted),
            "named": len(audit.finding.excess),
        }


@contextmanager
def smaller(scale: int) -> Iterator[None]:
    """Give books so many times less room."""
    from engine_hooks.core import endings, rebuild, sessions

    limit = rebuild.MAX_EVICTED // scale
    with ExitStack() as stack:
        for module, name in ((endings, "MAX_REMEMBERED"), (endings, "MAX_CAUGHT"), (sessions, "MAX_IDLE")):
            stack.enter_context(patch.object(module, name, getattr(module, name) // scale))
        stack.enter_context(patch("engine_hooks.core.work.EvictedHashes", lambda: rebuild.EvictedHashes(limit)))
        yield


def measure(folder: Path, scale: int = 1) -> Held:
    """Fill all books, twice; ``folder``: where no agent is."""
    with smaller(scale):
        _filled(folder, scale, hooked=True, shares=(0.01,))  # imports, and what is made once
        tracemalloc.start()
        try:
            (without,), _ = _filled(folder, scale, hooked=False, shares=(0.2,))  # its cache is full, and grows no more
            (once, twice), entries = _filled(folder, scale, hooked=True, shares=(1.0, 1.0))
            return Held(once - without, twice - without, entries)
        finally:
            tracemalloc.stop()


def _filled(folder: Path, scale: int, *, hooked: bool, shares: tuple[float, ...]) -> tuple[list[float], dict[str, int]]:
    """Return what an engine holds after each fill, in MiB, and how many entries the books have at the end."""
    before, found = _allocated(), []
    brim = Brim(folder, scale, hooked=hooked)
    for share in shares:
        brim.fill(share)
        found.append(_allocated() - before)
    if brim.reporter is None:
        return found, {}
    brim.reporter.close()
    return found, brim.entries()


def _allocated() -> float:
    gc.collect()
    return tracemalloc.get_traced_memory()[0] / MIB


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bed.hook_memory", description=__doc__)
    parser.add_argument("--scale", type=int, default=1, help="with books so many times smaller")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvtide-") as folder:
        held = measure(Path(folder), options.scale)
    print(f"{held.once:.2f} MiB when all books are full, {held.twice:.2f} MiB after as much again: {held.entries}")
    return int(max(held.once, held.twice) > CEILING_MIB)


if __name__ == "__main__":
    sys.exit(main())
