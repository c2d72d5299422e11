"""What engines call what they say of themselves, by kind and over the versions.

vLLM: ``gpu_`` names until 0.11, ``kv_cache_usage_perc`` and ``prefix_cache_*`` since 0.9.2; ``num_requests_swapped`` is
of its first engine (V0). SGLang: ``num_requests_*`` in its first pages; its own token counters move only when a request
ends, ``realtime_tokens_total`` moves while it runs.
"""

from __future__ import annotations

import msgspec

INFO = "cache_config_info"
# Split by a label: what is computed and what came from the cache are both prompt.
MODES = {
    ("realtime_tokens_total", "decode"): ("realtime/decode",),
    ("realtime_tokens_total", "prefill_compute"): ("realtime/prefill",),
    ("realtime_tokens_total", "prefill_cache"): ("realtime/prefill", "realtime/cache"),
}


class Reading(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a page says of one engine; None where it does not. ``throughput``: generated tokens a second, a gauge."""

    usage: float | None = None
    running: float | None = None
    waiting: float | None = None
    swapped: float | None = None
    used_tokens: float | None = None
    capacity_tokens: float | None = None
    throughput: float | None = None
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None


COUNTERS = ("preemptions", "prompt_tokens", "generation_tokens", "prefix_queries", "prefix_hits")


def _counter(*names: str) -> tuple[str, ...]:
    # Ray's exporter leaves the ending away.
    return tuple(f"{name}{ending}" for name in names for ending in ("_total", ""))


# The first name that a page has counts.
NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {
        "usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "swapped": ("num_requests_swapped",),
        "preemptions": _counter("num_preemptions"),
        "prompt_tokens": _counter("prompt_tokens"),
        "generation_tokens": _counter("generation_tokens"),
        "prefix_queries": _counter("prefix_cache_queries", "gpu_prefix_cache_queries"),
        "prefix_hits": _counter("prefix_cache_hits", "gpu_prefix_cache_hits"),
    },
    "sglang": {
        "usage": ("token_usage",),
        "running": ("num_running_reqs", "num_requests_running"),
        "waiting": ("num_queue_reqs", "num_requests_waiting"),
        "used_tokens": ("num_used_tokens",),
        "capacity_tokens": ("max_total_num_tokens",),
        "throughput": ("gen_throughput",),
        # Without _total it is a gauge of the last step.
        "preemptions": ("num_retracted_requests_total", "num_retracted_reqs_total"),
        "prompt_tokens": ("realtime/prefill", *_counter("prompt_tokens")),
        "generation_tokens": ("realtime/decode", *_counter("generation_tokens")),
        "prefix_queries": ("realtime/prefill", *_counter("prompt_tokens")),
        "prefix_hits": ("realtime/cache", *_counter("cached_tokens")),
    },
}
FIELD_OF = {(kind, name): field for kind, fields in NAMES.items() for field, names in fields.items() for name in names}
"""Which field a name belongs to; the last one where it belongs to two, which are then of one sort."""

ALL_NAMES = sorted(
    {INFO, *(name for name, _ in MODES), *(name for _, name in FIELD_OF if "/" not in name)}, key=len, reverse=True
)


def reading_of(kind: str, values: dict[str, float]) -> Reading:
    """Return what ``values`` by name mean for an engine of this kind."""
    found = {
        field: next((values[name] for name in names if name in values), None) for field, names in NAMES[kind].items()
    }
    capacity = found.get("capacity_tokens")
    if found["usage"] is None and capacity and found.get("used_tokens") is not None:
        found["usage"] = min(1.0, (found["used_tokens"] or 0.0) / capacity)
    return Reading(**found)
