"""config_mismatch: a setting that cannot work with this pool."""

from __future__ import annotations

from collections.abc import Callable

from agent.verdicts.base import Facts, Finding


class ConfigMismatch:
    """Fires on a limit of requests that is larger than the pool; quotas that are larger together are a note."""

    kind = "config_mismatch"
    confirm_seconds = 30.0
    clear_seconds = 10.0

    def judge(self, facts: Facts) -> Finding | None:
        """Return the first setting that can't work; None when none is seen."""
        return next((finding for rule in _RULES if (finding := rule(facts)) is not None), None)


def _longest(facts: Facts) -> Finding | None:
    """A limit on requests that no pool of this size can keep. Of groups that share a pool none can be told alone."""
    pool, groups = facts.pool, (facts.detail.groups if facts.detail else None) or ()
    if pool is None or pool.longest_tokens is None or not pool.block_tokens or len(groups) != 1:
        return None
    tokens = pool.capacity * pool.block_tokens
    if pool.longest_tokens <= tokens:
        return None
    return Finding(
        f"Requests may be {pool.longest_tokens:,} tokens long (max_model_len), and the KV pool has room for "
        f"{tokens:,}: a longer one can never run, and all behind it wait.",
        "Lower max_model_len to what the pool holds, or give the pool more memory (gpu_memory_utilization, a KV cache "
        "in FP8, more GPUs).",
        {"longest_tokens": pool.longest_tokens, "capacity_tokens": tokens},
        "warn",
    )


def _quotas(facts: Facts) -> Finding | None:
    rows = [row for row in (facts.detail.tenants if facts.detail else None) or () if row.quota_blocks is not None]
    if facts.pool is None or not facts.pool.capacity or not rows:
        return None
    capacity, total = facts.pool.capacity, sum(row.quota_blocks or 0 for row in rows)
    if total <= capacity:
        return None
    return Finding(
        f"Tenants may hold {total:,} blocks by their quotas, and the pool has {capacity:,}: quotas alone do not keep "
        "one from crowding out another.",
        "Lower the quotas to what the pool has, if they are meant as guarantees; as mere limits they may stay.",
        {"quota_blocks": total, "capacity_blocks": capacity},
        "note",
    )


_RULES: tuple[Callable[[Facts], Finding | None], ...] = (_longest, _quotas)
