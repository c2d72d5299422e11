"""A play whose worker can be compacted: its memory, its requests' tables, and what may go wrong with both."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.compaction.law import check_law
from tests.engine.levers.remembering import Play, RememberingExecutor

BLOCK_BYTES = 32_768
IN_FLIGHT = pytest.mark.parametrize("in_flight", [False, True], ids=["one step at a time", "steps in flight"])


class MovableExecutor(RememberingExecutor):
    """Does to its worker what :mod:`engine_hooks.worker.compaction` does to vLLM's.

    ``fails``: by function, what it answers instead. ``skips``: functions that say that they have done it and have not.
    ``calls``: what was asked, in order.
    """

    def _init_executor(self) -> None:
        super()._init_executor()
        self.fails: dict[str, Any] = {}
        self.skips: set[str] = set()
        self.calls: list[tuple[str, Any]] = []

    def collective_rpc(self, method: Any, timeout: float | None = None, args: Any = (), *rest: Any, **more: Any) -> Any:
        """Obey one of ours, or answer as ever."""
        name = getattr(getattr(method, "func", method), "__name__", "")
        if name not in ("look", "copy", "rewrite", "release", "touch", "progress"):
            return super().collective_rpc(method, timeout, args, *rest, **more)
        self.calls.append((name, args))
        if name in self.fails:
            answer = self.fails[name]
            if isinstance(answer, BaseException):
                raise answer
            return [answer]
        return [{} if name in self.skips and name != "copy" else getattr(self, f"_{name}")(*args)]

    def _look(self) -> dict[str, Any]:
        return {"blocks": self.blocks, "block_bytes": BLOCK_BYTES, "releases": ""}

    def _copy(self, pairs: Any) -> dict[str, Any]:
        memory = self.worker.memory
        if "copy" not in self.skips:
            for source, copy in pairs:
                for at in range(16):
                    memory.pop((copy, at), None)
                    if (source, at) in memory:
                        memory[copy, at] = memory[source, at]
        return {"seconds": 0.001}

    def _rewrite(self, pairs: Any) -> dict[str, Any]:
        moved = dict(pairs)
        for state in self.worker._states.values():
            state.blocks = [moved.get(block, block) for block in state.blocks]
        return {"lists": 1}

    def _release(self, ranges: Any) -> dict[str, Any]:
        gone = {block for first, end in ranges for block in range(first, end)}
        for place in [place for place in self.worker.memory if place[0] in gone]:
            del self.worker.memory[place]
        return {"bytes": len(gone) * BLOCK_BYTES}

    def _touch(self, _ranges: Any) -> dict[str, Any]:
        return {"bytes": 0, "over": True}

    def _progress(self) -> dict[str, Any]:
        return {"bytes": 77, "over": True}


class Moving(Play):
    """A play with such a worker. ``now``: the clock of its levers."""

    def __init__(self, blocks: int = 200, *, in_flight: bool = False, allowed: str = "compact,watermark,pause") -> None:
        super().__init__(blocks, in_flight=in_flight, allowed=allowed, executor=MovableExecutor)
        self.executor: Any = self.engine.model_executor
        self.executor.blocks = blocks
        self.lever: Any = self.desk._levers["compact"]
        self.compactor = self.lever._compactor
        self.counts = self.compactor.counts
        self.now = 1000.0
        self.desk._clock = lambda: self.now
        object.__setattr__(self.context, "clock", lambda: self.now)

    @property
    def context(self) -> Any:
        return self.lever._context

    @property
    def offline(self) -> int:
        return int(self.compactor.tail.count)

    def step(self, steps: int = 1) -> None:
        """Run steps; time goes on, and the law holds after each."""
        for _ in range(steps):
            super().step()
            self.now += 0.05
            self.check()

    def check(self) -> None:
        check_law(self.reporter, self.pool, self.compactor.tail.flags)

    def until(self, wanted: Callable[[], bool], steps: int = 500) -> None:
        """Run steps, or wake-ups where nothing is there to do, until it is so."""
        for _ in range(steps):
            if wanted():
                return
            if self.scheduler.has_requests() or self.engine.batch_queue:
                self.step()
            else:
                self.now += 0.5
                self.reporter.on_wake()
                self.check()
        raise AssertionError(f"{self.counts.state}: {self.counts.reason}")


MakeMoving = Callable[..., Moving]


def busy(game: Moving, requests: int = 6, tokens: int = 60) -> None:
    """Requests that run, two of three with a prefix in common, at both ends of the pool."""
    queue = game.pool.free_block_queue
    free = queue.popleft_n(queue.num_free_blocks)
    random.Random(5).shuffle(free)
    queue.append_n(free)
    for number in range(requests):
        game.add(70 + 7 * number, tokens, shared=64 if number % 3 else 0)
        game.step(2)
