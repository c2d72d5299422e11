"""config_mismatch: a setting that cannot work with this pool or on this card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

from agent.oom.log import Failure
from agent.oom.message import parse
from agent.plain import plain
from agent.state import EngineState
from agent.subject import Subject
from agent.verdicts.base import Finding, View
from agent.verdicts.who import worst
from engine_hooks.allocator import MEMORY

RECENT_SECONDS = 600.0  # an engine that tried to start so long ago is being looked after, or nobody wants it
# What vLLM says at its start where the pool that is left does not hold one request of the longest length.
TOO_SMALL = ("kv_cache", "context")
KEEPS_ALL = ("full_attention", "sink_full_attention", "mla")  # the others keep a window or a state, however long it is


class ConfigMismatch:
    """Fires on a limit of requests that is larger than the pool, before the start or while it serves. Quotas that are
    larger together than the pool are a note.
    """

    kind = "config_mismatch"
    confirm_seconds = 30.0
    clear_seconds = 10.0
    of_absence = False

    def judge(self, view: View) -> Iterable[tuple[Subject, Finding]]:
        """Yield the engines whose settings can't work."""
        return worst(_all(view))


def _all(view: View) -> Iterator[tuple[Subject, Finding]]:
    for failure in view.state.failures:
        if failure.engine and view.state.at - failure.event.at <= RECENT_SECONDS and _says_so(failure):
            yield Subject(scope="engine", engine=failure.engine), _never_starts(failure)
    for engine in view.state.engines:
        for finding in (_longest(engine), _quotas(engine)):
            if finding is not None:
                yield Subject(scope="engine", engine=engine.engine), finding


def _says_so(failure: Failure) -> bool:
    return failure.event.kind == MEMORY and failure.judgement is not None and _too_small(failure.event.message)


@lru_cache(maxsize=64)
def _too_small(message: str) -> bool:
    said = parse(message)
    return said is not None and said.source in TOO_SMALL


def _never_starts(failure: Failure) -> Finding:
    why = failure.judgement.sentence if failure.judgement else ""
    return Finding(
        f"Engine {plain(failure.engine)} can't start with these settings. {why}",
        failure.judgement.remedy if failure.judgement else "",
        {"failed_starts": failure.event.count},
        "page",
        0.0,
    )


def _longest(engine: EngineState) -> Finding | None:
    """A limit on requests that no pool of this size can keep. Of groups that share a pool none can be told alone."""
    pool, groups = engine.pool, (engine.detail.groups if engine.detail else None) or ()
    if pool is None or pool.longest_tokens is None or not pool.block_tokens or len(groups) != 1:
        return None
    if groups[0].kind not in KEEPS_ALL:
        return None
    tokens = pool.capacity * pool.block_tokens
    if pool.longest_tokens <= tokens:
        return None
    return Finding(
        f"Requests may be {pool.longest_tokens:,} tokens long (max_model_len), and the KV pool has room for "
        f"{tokens:,}: a longer one can never run, and all behind it wait.",
        "Lower max_model_len to what the pool holds, or give the pool more memory (gpu_memory_utilization, a KV cache "
        "in FP8, more GPUs). Evicting does not help: it is too small when it is empty.",
        {"longest_tokens": pool.longest_tokens, "capacity_tokens": tokens},
        "warn",
    )


def _quotas(engine: EngineState) -> Finding | None:
    rows = [row for row in (engine.detail.tenants if engine.detail else None) or () if row.quota_blocks is not None]
    if engine.pool is None or not engine.pool.capacity or not rows:
        return None
    capacity, total = engine.pool.capacity, sum(row.quota_blocks or 0 for row in rows)
    if total <= capacity:
        return None
    return Finding(
        f"Tenants may hold {total:,} blocks by their quotas, and the pool has {capacity:,}: quotas alone do not keep "
        "one from crowding out another.",
        "Lower the quotas to what the pool has, if they are meant as guarantees; as mere limits they may stay.",
        {"quota_blocks": total, "capacity_blocks": capacity},
        "note",
    )
