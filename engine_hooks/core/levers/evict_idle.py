"""Have cached blocks that nobody will ask for reused first: an order of eviction, not memory that comes free.

A cached block is a free block. Which of them are overwritten next decides whose prefixes are still there later.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine_hooks.core.levers.arguments import only, priority_of
from engine_hooks.core.levers.context import LeverContext
from engine_hooks.core.levers.free_queue import check_pool, first, put_before
from engine_hooks.core.levers.releases import MAX_TURNS, Releases
from engine_hooks.core.levers.reuse import Reuse
from engine_hooks.core.levers.worth import DUPLICATE, IDLE, IDLE_PRIORITY, KEPT, NEVER_HIT, UNREACHABLE, Worth
from engine_hooks.core.pins import Block
from engine_hooks.levers.base import Done, RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

MAX_LOOKED = 32_768  # free blocks, from the front: some 70 ms on a slow core
DEFAULT_BLOCKS = 1_000


class EvictIdle:
    """Arguments: ``blocks`` to move at most (1,000), ``idle_seconds`` (300), ``turns`` of a session that are kept while
    it is not over (2), the table of ``priority`` tenants, whose idle blocks go behind everybody else's, and
    ``never_hit_seconds``, from which age on a block that was never found goes (learned, where it is not given).

    First go blocks that no request can reach any more, then copies of a prefix that is there twice, then those that
    were never found since they were cached (of requests without a session, and not of priority tenants), then those of
    idle sessions; in each the one that would be reused first stays first. They come to stand behind free blocks that
    hold nothing, and before all that is kept. They are hits until they are reused. ``moved`` counts only blocks that
    stood behind one that is kept. Who used a block is noted only where KVTIDE_LEVERS lists this lever.
    """

    NAME = "evict_idle"

    def __init__(self, context: LeverContext) -> None:
        check_pool(context.view.pool)
        self._context, self._pool = context, context.view.pool
        self._releases: Releases | None = None
        self._reuse = Reuse()
        if context.allows(self.NAME):
            self._releases = context.releases()
            self._releases.reuse = self._reuse

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many blocks would be moved, by the reason why."""
        return self._plan(arguments)[0]

    def apply(self, arguments: Arguments) -> Done:
        """Move them. There is no way back, and no need: the next use of a block orders it anew."""
        effect, moves = self._plan(arguments)
        for anchor, blocks in moves:
            put_before(self._pool.free_block_queue, anchor, blocks)
        return Done(effect)

    def _plan(self, arguments: Arguments) -> tuple[dict[str, int | float], list[tuple[Block, list[Block]]]]:
        """Return the effect, and which blocks go before which other."""
        only(arguments, "blocks", "idle_seconds", "never_hit_seconds", "turns", "priority")
        most = whole(arguments, "blocks", 1, MAX_LOOKED, DEFAULT_BLOCKS)
        worth = Worth(
            self._context,
            self._releases,
            idle_seconds=number(arguments, "idle_seconds", 0.0, 86_400.0, 300.0),
            turns=whole(arguments, "turns", 0, MAX_TURNS, 2),
            priority=priority_of(arguments),
            never_hit_seconds=_age(arguments),
            reuse=self._reuse,
        )
        looked = first(self._pool.free_block_queue, MAX_LOOKED)
        cached = [block for block in looked if block.block_hash is not None]
        classes = worth.classes(cached)
        counts = [0] * (KEPT + 1)
        moves: list[tuple[Block, list[Block]]] = []
        # Twice: what is kept for priority tenants is something that the others' idle blocks must not stand behind.
        for kinds in (range(IDLE_PRIORITY), (IDLE_PRIORITY,)):
            anchor, movable = _behind(cached, classes, kinds)
            blocks = [block for kind in kinds for block in movable[kind]][: most - sum(counts)]
            if anchor is not None and blocks:
                moves.append((anchor, blocks))
                chosen = set(map(id, blocks))
                for kind in kinds:
                    counts[kind] = sum(id(block) in chosen for block in movable[kind])
        if not moves:
            unknown = (
                "" if self._releases else "; who used a block is not noted: KVTIDE_LEVERS does not list evict_idle"
            )
            raise RefusedError("nothing", f"no such block stands behind one that is kept{unknown}")
        effect: dict[str, int | float] = {
            "moved": sum(counts),
            "unreachable": counts[UNREACHABLE],
            "duplicates": counts[DUPLICATE],
            "never_hit": counts[NEVER_HIT],
            "idle": counts[IDLE] + counts[IDLE_PRIORITY],
            "looked": len(looked),
        }
        return effect, moves


def _age(arguments: Arguments) -> float | None:
    return number(arguments, "never_hit_seconds", 0.0, 86_400.0) if "never_hit_seconds" in arguments else None


def _behind(
    cached: Sequence[Block], classes: Sequence[int], kinds: Sequence[int]
) -> tuple[Block | None, dict[int, list[Block]]]:
    """Return the first block that is worth more than all ``kinds``, and those of each kind that stand behind it."""
    worst = max(kinds)
    anchor: Block | None = None
    found: dict[int, list[Block]] = {kind: [] for kind in kinds}
    for block, kind in zip(cached, classes, strict=True):
        if kind > worst:
            anchor = anchor if anchor is not None else block
        elif anchor is not None and kind in found:
            found[kind].append(block)
    return anchor, found
