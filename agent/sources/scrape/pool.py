"""The size of a scraped engine's KV pool, and what is held of it, as far as its page tells."""

from __future__ import annotations

import msgspec

from agent.plain import plain
from agent.sources.scrape.families import Reading

_MOST = 64  # characters of a name
_DIGITS = 15  # of a number of blocks or bytes that can be


class Pool(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Blocks, tokens and bytes on one rank; None where the page does not say. ``cache_dtype``: in its words."""

    capacity_blocks: int | None = None
    block_tokens: int | None = None
    capacity_tokens: int | None = None
    capacity_bytes: int | None = None
    held_blocks: int | None = None
    held_tokens: int | None = None
    held_bytes: int | None = None
    cache_dtype: str = ""


def pool_of(reading: Reading, info: dict[str, str]) -> Pool:
    """Return the pool. ``info``: the labels of vLLM's ``cache_config_info``; empty for SGLang.

    vLLM's use is a share of all blocks but one, which it keeps for itself; V0 (it counts swapped requests) kept none.
    """
    every = _number(info, "num_gpu_blocks")
    blocks = every - 1 if every is not None and reading.swapped is None else every
    block_tokens = _number(info, "block_size")
    tokens = _number(info, "kv_cache_size_tokens")
    if tokens is not None and every is not None and blocks is not None:
        tokens = tokens * blocks // every  # it is of all blocks
    elif tokens is None and blocks is not None and block_tokens is not None:
        tokens = blocks * block_tokens
    if reading.capacity_tokens is not None:
        tokens = int(reading.capacity_tokens)
    # The bytes that it was told to take are those of its blocks, unless it was told their number, too.
    size = _number(info, "kv_cache_memory_bytes") if _number(info, "num_gpu_blocks_override") is None else None
    used = None if reading.used_tokens is None else int(reading.used_tokens)
    return Pool(
        capacity_blocks=blocks,
        block_tokens=block_tokens,
        capacity_tokens=tokens,
        capacity_bytes=size,
        held_blocks=_share(reading.usage, blocks),
        held_tokens=_share(reading.usage, tokens) if used is None else used,
        held_bytes=_share(reading.usage, size),
        cache_dtype=plain(info.get("cache_dtype", ""), _MOST),
    )


def cannot(pool: Pool, reading: Reading, rejected: bool) -> dict[str, str]:
    """Say what this page can't tell, and why. ``rejected``: it says something that can't be."""
    missing = dict(_NEVER)
    if reading.usage is None:
        missing["use of the pool"] = "what the page says can't be" if rejected else "the page does not say it"
    if pool.capacity_tokens is None:
        missing["size of the pool"] = "the page does not say it"
    if pool.held_bytes is None:
        missing["bytes"] = "the page has a share and a number of blocks, not their size"
    if reading.generation_tokens is None and reading.throughput is None:
        missing["progress"] = "the page has no token counters"
    return missing


_NEVER = {
    "orphaned, over-freed, pinned and delayed blocks": "only inside the engine can references be compared with holders",
    "cached idle blocks": "the page shows the share that requests hold",
    "tenants, sessions and requests": "the page does not say whose its numbers are",
    "cost of rebuilding and of allocation": "hooks time these where they happen",
    "workers and ranks": "they have no page",
}


def _number(info: dict[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS and int(text) > 0 else None


def _share(ratio: float | None, whole: int | None) -> int | None:
    return None if ratio is None or whole is None else round(ratio * whole)
