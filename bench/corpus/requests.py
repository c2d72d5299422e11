"""Requests of a made-up engine: who sends them, how long they are, and how far they have come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

BLOCK_TOKENS = 16


@dataclass(slots=True, eq=False)
class Tenant:
    """``rate``: requests a second of ``t``; lengths are log-normal around their medians, capped.

    ``reuse``: the part of a prompt that its session's earlier turns have left in the prefix cache.
    """

    name: str
    rate: Callable[[float], float]
    prompt: float = 800.0
    output: float = 250.0
    spread: float = 0.7
    longest: int = 16_000
    reuse: float = 0.3
    quota_blocks: int | None = None
    requests: int = 0
    prompt_tokens: int = 0
    generated: float = 0.0
    preempted: int = 0
    ended: dict[str, int] = field(default_factory=dict)

    def draw(self, rng: Random) -> Request:
        """Return its next request."""
        prompt = min(self.longest, max(8, int(self.prompt * rng.lognormvariate(0, self.spread))))
        output = min(self.longest, max(4, int(self.output * rng.lognormvariate(0, self.spread))))
        return Request(self, prompt, output)


@dataclass(slots=True, eq=False)
class Request:
    """``done``: tokens whose KV is there, in ``blocks``; ``computed``: what was there before a preemption.

    ``patience``: seconds after which its client gives up waiting; None: never.
    """

    tenant: Tenant
    prompt: int
    output: int
    done: float = 0.0
    computed: float = 0.0
    refused: int = 0
    waited: float = 0.0
    ran: float = 0.0
    patience: float | None = None

    blocks: int = 0

    @property
    def whole(self) -> int:
        """Blocks that it will hold in the end."""
        return (self.prompt + self.output) // BLOCK_TOKENS + 1

    def reach(self, done: float) -> int:
        """Let it come to ``done`` tokens; return how many blocks more it holds."""
        before = self.blocks
        self.done = done
        self.blocks = -(-int(done) // BLOCK_TOKENS) if done > 0 else 0
        return self.blocks - before

    @property
    def generated(self) -> float:
        """Tokens that it has generated."""
        return max(0.0, self.done - self.prompt)
