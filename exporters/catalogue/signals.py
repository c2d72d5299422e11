"""What an engine's numbers mean over time. Rates are shares of the pool a second; where too little is seen for a value
there is none.
"""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

_BOUND = ("engine", "bound")
_ENDS = "bound: estimate, and the ends low and high of its 95% interval"
TIMES = "ratio of two values"


def _of(name: str, unit: str, text: str, labels: tuple[str, ...] = ENGINE, *, detail: bool = False) -> Metric:
    return Metric(f"kvtide_{name}", "gauge", unit, labels, text, detail=detail)


def _rate(name: str, text: str, *, detail: bool = False) -> Metric:
    words = f"{text}, as a share of the pool; {_ENDS}."
    return _of(f"{name}_per_second", "ratio per second", words, _BOUND, detail=detail)


KV_USE = _of("kv_use_ratio", "ratio", "Held KV blocks, as a share of the pool.")
KV_GROWTH = _rate("kv_growth", "Growth of held blocks over the last minutes")
KV_UNEXPLAINED_GROWTH = _rate("kv_unexplained_growth", "Growth of held blocks that live requests do not account for")
KV_ACCELERATION = _of(
    "kv_growth_acceleration_per_second",
    "ratio per second squared",
    "Change of the growth of held blocks, as a share of the pool.",
)
KV_DOUBLING = _of("kv_growth_doubling_seconds", "seconds", "In which the growth of held blocks doubles.")
KV_EXHAUSTION = _of(
    "kv_exhaustion_seconds",
    "seconds",
    f"Until the pool is full if it goes on like this; {_ENDS}. Without high it may never be; absent where nothing can "
    "be said.",
    _BOUND,
)
KV_SLOW_GROWTH = _rate("kv_slow_growth", "Growth of what stays of held blocks, over hours")
KV_SLOW_UNEXPLAINED = _rate(
    "kv_slow_unexplained_growth", "Growth of what stays and is unexplained, over hours", detail=True
)
KV_LEAKS = _of(
    "kv_leaking",
    "boolean",
    "1 where what stays of held blocks grows over hours, in two windows that agree, and what came stayed.",
    detail=True,
)
KV_FLOOR = _of("kv_floor_ratio", "ratio", "Level that held blocks fall back to, where they rise and fall in teeth.")
KV_AMPLITUDE = _of("kv_tooth_amplitude_ratio", "ratio", "Height of those teeth.")
KV_PERIOD = _of("kv_tooth_period_seconds", "seconds", "From one of those teeth to the next.", detail=True)
KV_IDLE_FLOOR = _of("kv_idle_floor_ratio", "ratio", "Held while nothing runs or waits.", detail=True)
KV_TAIL_WASTE = _of("kv_tail_waste_ratio", "ratio", "Token slots of held blocks that are not filled.")
KV_PER_RUNNING = _of("kv_blocks_per_running_request", "blocks", "Held blocks for each running request.", detail=True)
KV_PER_TOKEN = _of("kv_generated_token_bytes", "bytes", "KV memory that each generated token takes, on one rank.")
KV_TAKEN = _of("kv_blocks_taken_per_second", "blocks per second", "Blocks taken, over the last minute.", detail=True)
KV_GIVEN_BACK = _of(
    "kv_blocks_given_back_per_second", "blocks per second", "Blocks given back, over the last minute.", detail=True
)
KV_RESIDUE = _of("kv_residue_bytes", "bytes", "Held on behalf of interrupted drafts and transfers.")

HARM = _of(
    "memory_harm",
    "boolean",
    "1 where in the last minute something waited for memory, was preempted or was refused.",
)
PREEMPTIONS = _of("preemptions_per_second", "preemptions per second", "Running requests put back for memory.")
REFUSALS = _of(
    "refusals_per_second", "refusals per second", "Attempts to admit a request that memory refused.", detail=True
)
REBUILD = _of("rebuild_ratio", "ratio", "Tokens of prefill that had been computed before.")
REBUILD_EVICTED = _of("rebuild_evicted_ratio", "ratio", "Tokens of prefill that had been computed before and evicted.")
REBUILD_COST = _of(
    "rebuild_cost_ratio", "ratio", "Share of the engine's step time that went into such tokens.", detail=True
)
PREFIX_HITS = _of("prefix_hit_ratio", "ratio", "Prompt tokens that were found in the prefix cache.")
PREFIX_TIMES = _of("prefix_hit_baseline_times", TIMES, "The prefix hit ratio against what is usual here.", detail=True)
WAIT_P99 = _of(
    "admission_wait_p99_seconds", "seconds", "From a request's first refusal to its success, p99 of the last minute."
)
TAKE_P99 = _of(
    "block_allocation_p99_seconds", "seconds", "One call that takes blocks, p99 of the last minute.", detail=True
)
FAILED = _of("requests_failed_ratio", "ratio", "Requests that ended in an error, of those that ended.")
STILL = _of("no_progress_seconds", "seconds", "Since a token was made, while there is work.")
TOKENS = _of("generated_tokens_per_second", "tokens per second", "Tokens generated.")
TOKENS_PER_RUNNING = _of(
    "generated_tokens_per_running_request_per_second",
    "tokens per second",
    "Tokens generated for each running request.",
    detail=True,
)
REQUEST_P99 = _of("request_p99_seconds", "seconds", "From a request's admission to its end or preemption, p99.")
REQUEST_TIMES = _of("request_p99_baseline_times", TIMES, "That p99 against what is usual here.", detail=True)
CONTEXT = _of("context_mean_tokens", "tokens", "Mean context of requests.")
CONTEXT_TIMES = _of("context_baseline_times", TIMES, "Mean context against what is usual here.", detail=True)
LONG_TAIL = _of(
    "long_tail_ratio", "ratio", "Requests whose context is longer than the policy's long_tokens.", detail=True
)
LONG_TAIL_TIMES = _of(
    "long_tail_baseline_times", TIMES, "The long tail's share against what is usual here.", detail=True
)
INTERRUPTED = _of("speculation_interruption_ratio", "ratio", "Drafts that were interrupted, of all.")
