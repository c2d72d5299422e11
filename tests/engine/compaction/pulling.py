"""What is done to a real engine while it serves: its pool shrunk and grown at random, its worker killed in mid-move."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.engine.compaction.real_engine import Real

SHRINK_AT = 8  # the step at which the pool is made smaller
SLICES = 2  # of a move; the worker dies in the last of them


class Puller:
    """Shrinks and grows at random, ``cycles`` times; counts what came of it.

    A shrink is undone when it has come to its end or halfway. ``whole``: those that came to it. ``audited``: audits,
    one when a shrink has ended, one when it is undone and one when all is back; ``unclean``: those that named or missed
    a block. ``pressed``: shrinks during which a request was preempted.
    """

    def __init__(self, real: Real, cycles: int) -> None:
        self.real, self.left, self.draw = real, cycles, random.Random(real.options.seed + 1)
        self.action = ""
        self.begun = self.whole = self.audited = self.unclean = self.pressed = 0
        self.refused: Counter[str] = Counter()
        self._audited_in = ""
        self._preempted = 0

    def __call__(self, _number: int) -> None:
        """Be called between two steps."""
        real, draw, state = self.real, self.draw, self.real.compactor.counts.state
        if self.action:
            ended = state not in ("moving", "growing")
            if ended and self._audited_in != self.action:
                self.whole += state != "stopped"
                self._audited_in = self.action
                self._audit()
            if draw.random() < (0.5 if ended else 0.12):
                assert real.order("undo", self.action).code == "undone"
                self.action = ""
                self.pressed += real.preempted > self._preempted
                self._audit()
        elif self._audited_in != "whole" and state == "idle":
            self._audited_in = "whole"
            self._audit()
        elif self.left and draw.random() < 0.8:
            self._begin()

    def _begin(self) -> None:
        real = self.real
        held = real.reporter._view.held()
        target = self.draw.randrange(held + 8, held + max(16, real.options.blocks // 3))
        result = real.order("apply", to_blocks=target)
        assert result.code in ("done", "unsafe", "nothing"), result
        if result.ok:
            self.left -= 1
            self.begun += 1
            self.action, self._audited_in, self._preempted = result.action, "", real.preempted
        else:
            self.refused[result.detail.split(":")[0][:30]] += 1

    def _audit(self) -> None:
        self.audited += 1
        self.unclean += self.real.audit() != (0, 0)


def control_of(real: Real, alone: dict[str, list[int]]) -> int:
    """Leave the copies out from now on; return how many requests have other tokens than ``alone`` when all moves."""
    from engine_hooks.worker import compaction

    compaction._copy = lambda _worker, _pairs: {"seconds": 0.0}
    out = real.run(partial(shrink_once, real))
    return sum(out[key] != alone[key] for key in alone)


def shrink_once(real: Real, number: int) -> None:
    """Be called between two steps: at one of them the pool becomes so small that held blocks have to move."""
    if number == SHRINK_AT:
        assert real.order("apply", to_blocks=real.reporter._view.held() + 150).ok


def kill_in(where: str, worker: Any) -> None:
    """Have the last rank's process be killed in the middle of a move: when it has done half of ``where``.

    Where several slices are moved that is not the first of them.
    """
    from engine_hooks.worker import compaction

    if worker.rank != worker.parallel_config.world_size - 1:
        return
    original, slices = getattr(compaction, f"_{where}"), 0

    def half(worker: Any, pairs: Any) -> Any:
        nonlocal slices
        slices += 1
        if slices < SLICES:
            return original(worker, pairs)
        original(worker, pairs[: len(pairs) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    setattr(compaction, f"_{where}", half)


def killed(real: Real, where: str, alone: dict[str, list[int]]) -> dict[str, Any]:
    """Kill the worker in mid-move under load; return what the engine told, and whether it took a step afterwards."""
    real.core.model_executor.collective_rpc(partial(kill_in, where))
    real.told.clear()

    raised = stepped = 0
    try:
        real.run(partial(shrink_once, real))
    except Exception as error:
        raised = 1
        print(f"it ended: {type(error).__name__}: {error}"[:300], file=sys.stderr, flush=True)
    before = {request: list(tokens) for request, tokens in real.told.items()}
    for _ in range(3):
        try:
            real.engine.step()
            stepped += 1
        except Exception as error:
            print(f"no step: {type(error).__name__}", file=sys.stderr, flush=True)
    wrong = sum(alone[request][: len(tokens)] != tokens for request, tokens in real.told.items())
    return {
        "raised": raised,
        "stepped": stepped,
        "told": sum(map(len, before.values())),
        "more": real.told != before,
        "wrong": wrong,
        "moved": real.compactor.counts.moved,
    }
