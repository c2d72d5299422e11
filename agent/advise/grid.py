"""What is tried: one setting at a time around what is in use, so that each one's effect can be told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from engine_hooks.simulator.spec import Engine

BLOCK_SIZES = (8, 16, 32, 64, 128)
POOLS = (0.7, 0.85, 1.0, 1.15, 1.3)
WATERMARKS = (0.0, 0.01, 0.03, 0.05)
BLOCK_SIZE, POOL, WATERMARK, UTILISATION = "block size", "pool", "watermark", "memory utilisation"


class Device(NamedTuple):
    """What a pool is cut out of, in bytes. ``other``: weights, activations, graphs: all that the pool does not get."""

    total: float
    other: float
    token_bytes: float

    def tokens(self, utilisation: float) -> int:
        """Return how many tokens fit where ``utilisation`` of the device is used; 0 where not even the rest does."""
        return max(0, int((self.total * utilisation - self.other) / self.token_bytes))


class Trial(NamedTuple):
    """One engine to try: ``setting`` is at ``value``, everything else as it is in use. ``usual``: so is this one."""

    setting: str
    value: str
    engine: Engine
    usual: bool = False


def trials(
    engine: Engine,
    *,
    block_sizes: Sequence[int] = BLOCK_SIZES,
    pools: Sequence[float] = POOLS,
    watermarks: Sequence[float] = WATERMARKS,
    device: Device | None = None,
    utilisations: Sequence[float] = (),
) -> Iterator[Trial]:
    """Yield what is to be tried; what is in use comes once in each setting. The pool keeps its tokens where another
    block size is tried.
    """
    tokens = engine.blocks * engine.block_size
    for size in sorted({*block_sizes, engine.block_size}):
        other = replace(engine, block_size=size, blocks=max(16, tokens // size))
        yield Trial(BLOCK_SIZE, f"{size}", other, size == engine.block_size)
    for share in sorted({*pools, 1.0}):
        other = replace(engine, blocks=max(16, int(engine.blocks * share)))
        yield Trial(POOL, f"{share:.0%}", other, share == 1.0)
    own = engine.watermark or 0.0  # unset: vLLM keeps nothing free by itself
    for mark in sorted({*watermarks, own}):
        yield Trial(WATERMARK, f"{mark:.0%}", replace(engine, watermark=mark), mark == own)
    if device is not None:
        for share in sorted(utilisations):
            blocks = device.tokens(share) // engine.block_size
            if blocks >= 16:
                yield Trial(UTILISATION, f"{share:.0%}", replace(engine, blocks=blocks))
