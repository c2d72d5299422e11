"""Efficiency: what the memory is worth. Work done once, memory well used, answers that come whole."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row
from dashboards.boards import absent
from dashboards.panels import above, below, lines, stat
from dashboards.query import Chosen, Query, rate, usual
from dashboards.units import TIMES, each_second, of, share
from exporters import catalogue as c

engine = Chosen("engine")
gpu = Chosen()
WHOSE = "{{engine}} on {{instance}}"
BY = "instance, engine"


def _sum(series: str, by: str = "") -> str:
    return f"sum by ({by}) ({rate(series)})" if by else f"sum({rate(series)})"


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    rebuild = above(policy.serving.rebuild_warn_ratio, policy.serving.rebuild_page_ratio)
    slower = above(policy.serving.latency_warn_times, policy.serving.latency_page_times)
    slow = above(0.01)  # of requests: the budget that the alert on latency burns
    again, made = engine(c.REBUILT_TOKENS), engine(c.TOKENS_SCHEDULED)
    whole = engine(c.TENANT_ENDED, ending="finished")
    ended, interrupted = engine(c.TENANT_ENDED), engine(c.REQUESTS_PREEMPTED)
    effective = f"1 - {_sum(again, BY)} / ({_sum(made, BY)} > 0)"
    complete = f"{_sum(whole, BY)} / ({_sum(ended, BY)} > 0)"
    admitted = f"({_sum(engine(c.PROMPT_TOKENS, '_count'), BY)} > 0)"
    # By size: a small pool is not as much of them all as a large one.
    at_work, capacity = engine.recorded("engine:kvtide_kv_at_work:ratio"), engine(c.KV_CAPACITY)
    working = f"{at_work} * on (instance, engine) {capacity}"
    all_at_work = f"sum({working}) / sum({capacity} and on (instance, engine) {at_work})"
    return (
        Row(
            "What is it worth now, and whose is the worst",
            (
                stat(
                    "Effective tokens",
                    "Share of all computed tokens that were not computed before, on the worst engine.",
                    Query(f"bottomk(1, {effective})", WHOSE),
                    unit=share("of the tokens"),
                    steps=below(1 - policy.serving.rebuild_warn_ratio, 1 - policy.serving.rebuild_page_ratio),
                    none=absent.HOOKS,
                    name=True,
                ),
                stat(
                    "Prefix hits",
                    "Share of prompt tokens found in the cache, on the worst engine.",
                    Query(f"bottomk(1, {engine(c.PREFIX_HITS)})", WHOSE),
                    unit=of(c.PREFIX_HITS),
                    none="No engine caches prefixes",
                    name=True,
                ),
                stat(
                    "Rebuilt",
                    "Share of prefill that had been computed before, on the worst engine.",
                    Query(f"topk(1, {engine(c.REBUILD)})", WHOSE),
                    unit=of(c.REBUILD),
                    steps=rebuild,
                    none="No prefill was seen",
                    name=True,
                ),
                stat(
                    "Pool at work",
                    "Share of all pools that live requests hold, what has leaked left out.",
                    Query(all_at_work, "at work"),
                    unit=share("of the pools"),
                    none=absent.RULES,
                ),
                stat(
                    "Complete answers",
                    "Share of requests that ended by themselves, neither aborted nor failed, on the worst engine.",
                    Query(f"bottomk(1, {complete})", WHOSE),
                    unit=share("of the requests"),
                    steps=below(1 - policy.serving.failed_warn_ratio, 1 - policy.serving.failed_page_ratio),
                    none="No request has ended",
                    name=True,
                ),
                stat(
                    "Slower than usual",
                    "The engine whose p99 has risen most against its own mean of a day.",
                    Query(f"topk(1, {usual(engine(c.REQUEST_P99))})", WHOSE),
                    unit=TIMES,
                    steps=slower,
                    none="Too few requests, or nothing is usual yet",
                    name=True,
                ),
            ),
            across=6,
            high=4,
        ),
        Row(
            "Efficiency: is work done once",
            (
                lines(
                    "Hit against rebuild",
                    "Prompt tokens found in the cache, and prefill done again: hits that fall while rebuild rises are "
                    "a pool too small for its load, or a leak.",
                    Query(engine(c.PREFIX_HITS), f"hit, {WHOSE}"),
                    Query(engine(c.REBUILD), f"rebuilt, {WHOSE}"),
                    unit=share("of the prefill"),
                    none=absent.HOOKS,
                    top=1,
                ),
                lines(
                    "Effective tokens",
                    "Tokens computed for the first time, and tokens computed again.",
                    Query(f"{_sum(made)} - {_sum(again)}", "for the first time"),
                    Query(_sum(again, "cause"), "again, {{cause}}"),
                    unit=each_second(c.TOKENS_SCHEDULED),
                    none=absent.HOOKS,
                    stacked=True,
                ),
                lines(
                    "What rebuilding costs",
                    "Share of the engine's step time that went into tokens computed before.",
                    Query(f"{rate(engine(c.REBUILD_SECONDS))} / ({rate(engine(c.STEP_SECONDS))} > 0)", WHOSE),
                    unit=share("of step time"),
                    none="No prefill was seen",
                ),
                lines(
                    "Drafts accepted",
                    "Share of drafted tokens that were accepted: the rest was memory and work for nothing.",
                    Query(f"{_sum(engine(c.ACCEPTED), BY)} / ({_sum(engine(c.DRAFTED), BY)} > 0)", WHOSE),
                    unit=share("of the drafted tokens"),
                    none="No engine here drafts",
                    top=1,
                ),
            ),
        ),
        Row(
            "Resource: is memory well used",
            (
                lines(
                    "Pool at work",
                    "Blocks of live requests over the pool, and the token slots of held blocks that nothing fills.",
                    Query(engine.recorded("engine:kvtide_kv_at_work:ratio"), f"at work, {WHOSE}"),
                    Query(engine(c.KV_TAIL_WASTE), f"unfilled slots, {WHOSE}"),
                    unit=share("of the pool, or of its slots"),
                    none=absent.HOOKS,
                    top=1,
                ),
                lines(
                    "Memory of a generated token",
                    "KV memory that each generated token takes on one rank: it rises with contexts and with leaks.",
                    Query(engine(c.KV_PER_TOKEN), WHOSE),
                    unit=of(c.KV_PER_TOKEN),
                    none=absent.HOOKS,
                ),
                lines(
                    "Blocks of a running request",
                    "Held blocks for each request that runs: it rises with contexts and with leaks.",
                    Query(f"{engine(c.KV_HELD)} / ({engine(c.REQUESTS_RUNNING)} > 0)", WHOSE),
                    unit=of(c.KV_HELD),
                    none=absent.HOOKS,
                ),
                lines(
                    "GPU busy",
                    "Share of the time in which a kernel ran: a busy GPU with few effective tokens does work twice.",
                    Query(gpu(c.GPU_UTILISATION), "GPU {{gpu}} on {{instance}}"),
                    unit=share("of the time"),
                    none=absent.GPU,
                    top=1,
                ),
            ),
        ),
        Row(
            "Quality: do answers come whole and in time",
            (
                lines(
                    "Interruptions",
                    "Requests put back for memory, of those admitted, and drafts cut off.",
                    Query(f"{_sum(interrupted, BY)} / {admitted}", f"preempted, {WHOSE}"),
                    Query(engine(c.INTERRUPTED), f"drafts, {WHOSE}"),
                    unit=share("of the requests, or of drafts"),
                    none=absent.HOOKS,
                ),
                lines(
                    "Context completeness",
                    "Requests that ended by themselves, and those that ended in an error, of all that ended; a length "
                    "limit counts as an end.",
                    Query(complete, f"complete, {WHOSE}"),
                    Query(engine(c.FAILED), f"failed, {WHOSE}"),
                    unit=share("of the requests"),
                    none="No request has ended",
                    top=1,
                ),
                lines(
                    "Waited too long for memory",
                    "Of the requests that were admitted, those that memory kept waiting for longer than the policy "
                    "allows.",
                    Query(engine.recorded("engine:kvtide_admission_wait_slow:ratio_rate5m"), f"5 min, {WHOSE}"),
                    Query(engine.recorded("engine:kvtide_admission_wait_slow:ratio_rate1h"), f"1 h, {WHOSE}"),
                    unit=share("of the requests"),
                    steps=slow,
                    none="No request was admitted, or the recording rules are not loaded",
                ),
                lines(
                    "Latency against what is usual",
                    "The p99 from a request's admission to its end, as times of the engine's own mean of a day.",
                    Query(usual(engine(c.REQUEST_P99)), WHOSE),
                    unit=TIMES,
                    steps=slower,
                    none="Too few requests, or nothing is usual yet",
                ),
                lines(
                    "Contexts",
                    "Mean context of requests, and how it stands to what is usual: longer contexts are not a leak.",
                    Query(engine(c.CONTEXT), WHOSE),
                    unit=of(c.CONTEXT),
                    none=absent.HOOKS,
                ),
                lines(
                    "Tokens for each running request",
                    "How fast a request gets its answer.",
                    Query(f"{engine(c.TOKENS)} / ({engine(c.REQUESTS_RUNNING)} > 0)", WHOSE),
                    unit=of(c.TOKENS),
                    none=absent.HOOKS,
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-efficiency",
    "kvtide / Efficiency",
    "What the memory is worth: work done once, memory well used, answers that come whole.",
    rows,
)
