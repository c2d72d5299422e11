"""Engine: the KV tide. How full the pool is, with what, how fast it fills, and who feels it."""

from __future__ import annotations

from agent.policy.types import Policy
from dashboards.board import Board, Row
from dashboards.boards import absent, ill
from dashboards.panels import BAD, Panel, above, below, lines, spans, stat, with_interval
from dashboards.query import Chosen, Query, estimate, quantile, rate
from dashboards.units import PLAIN, SHARE_PER_MINUTE, each_second, of, share
from exporters import catalogue as c

engine = Chosen("engine")
WHOSE = "{{engine}} on {{instance}}"
HELD, IDLE, EMPTY, ORPHANED, CAPACITY = "held", "cached idle", "empty", "orphaned, of the held", "capacity"
BY = "instance, engine"


def tide() -> Panel:
    """Return one engine's pool by what its blocks are."""
    return (
        lines(
            "KV tide of $engine",
            "Every block of the pool: held by requests, free but still cached, or empty; the red line is what of the "
            "held blocks has leaked, and is missing where that can't be known.",
            Query(f"sum({engine(c.KV_HELD)})", HELD),
            Query(f"sum({engine(c.KV_CACHED_IDLE)})", IDLE),
            Query(f"sum({engine(c.KV_EMPTY)})", EMPTY),
            Query(f"sum({engine(c.KV_ORPHANED)})", ORPHANED),
            Query(f"sum({engine(c.KV_CAPACITY)})", CAPACITY),
            unit=of(c.KV_HELD),
            none=absent.HOOKS,
            stacked=True,
            colours={HELD: "blue", IDLE: "green", EMPTY: "rgba(128, 128, 128, 0.3)", ORPHANED: "red", CAPACITY: "text"},
            apart=(ORPHANED, CAPACITY),
        )
        .repeat("engine")
        .repeat_direction("h")
        .max_per_row(2)
    )


def rows(policy: Policy) -> tuple[Row, ...]:
    """Return the board's rows."""
    grows = above(policy.growth.warn_per_minute, policy.growth.page_per_minute)
    slow = above(policy.allocator.latency_warn_seconds, policy.allocator.latency_page_seconds)
    rebuilt = above(policy.serving.rebuild_warn_ratio, policy.serving.rebuild_page_ratio)
    queue = above(policy.serving.queue_warn, policy.serving.queue_page)
    leaked = f"{engine(c.KV_ORPHANED)} / {engine(c.KV_CAPACITY)}"
    wait = engine(c.ADMISSION_WAIT, "_bucket")
    return (
        Row(
            "Is it ill, since when, how long left, whose",
            (
                ill.health(policy, engine, "engine|kv"),
                ill.pages(engine),
                ill.standing_for(engine),
                ill.left(policy, engine),
                stat(
                    "Leaked",
                    "The largest leaked share of a pool: blocks that no request explains.",
                    Query(f"topk(1, {leaked})", WHOSE),
                    unit=share("of the pool"),
                    steps=((1e-9, BAD),),
                    none="No pool can be accounted for",
                    name=True,
                ),
                stat(
                    "Engines silent",
                    "Engines whose own thread does not report; they have no values until it does.",
                    Query(f"count({engine(c.ENGINE_UP)} == 0) or 0 * count({engine(c.ENGINE_UP)})", "silent"),
                    unit=PLAIN,
                    steps=((1, BAD),),
                    none=absent.HOOKS,
                ),
            ),
            across=6,
            high=4,
        ),
        Row("The tide", (tide(),), across=1, high=10),
        Row(
            "Where it is going",
            (
                lines(
                    "Growth",
                    "How fast held blocks grow; a ramp-up grows too, so see beside it what of it is unexplained.",
                    Query(f"60 * {estimate(engine, c.KV_GROWTH)}", WHOSE),
                    unit=SHARE_PER_MINUTE,
                    none=absent.HOOKS,
                ),
                lines(
                    "Unexplained growth",
                    "Growth that live requests do not account for: a leak shows here long before the pool is full.",
                    Query(f"60 * {estimate(engine, c.KV_UNEXPLAINED_GROWTH)}", WHOSE),
                    unit=SHARE_PER_MINUTE,
                    steps=grows,
                    none=absent.HOOKS,
                ),
                lines(
                    "Acceleration",
                    "How the growth itself changes: above zero for minutes means it gets worse faster.",
                    Query(f"3600 * {engine(c.KV_ACCELERATION)}", WHOSE),
                    unit=share("of the pool a minute, each minute"),
                    none=absent.HOOKS,
                ),
                with_interval(
                    lines(
                        "Forecast: time until the pool is full",
                        "With its interval, where one can be made; without an upper end it may never fill.",
                        Query(estimate(engine, c.KV_EXHAUSTION), WHOSE),
                        Query(estimate(engine, c.KV_EXHAUSTION, "low"), f"{WHOSE} low"),
                        Query(estimate(engine, c.KV_EXHAUSTION, "high"), f"{WHOSE} high"),
                        unit=of(c.KV_EXHAUSTION),
                        steps=below(policy.growth.forecast_seconds),
                        none=absent.FORECAST,
                    )
                ),
                lines(
                    "Health",
                    "The score by scope, of 100: what is behind the number above.",
                    Query(engine(c.HEALTH_SCORE, form="kvtide", scope="~kv|engine"), f"{{{{scope}}}} of {WHOSE}"),
                    unit=of(c.HEALTH_SCORE),
                    steps=ill.score(policy),
                    none="No score: nothing is judged",
                    top=100,
                ),
                lines(
                    "Growth over hours",
                    "What stays of held blocks, and what of that nobody explains: the leak that no minute shows.",
                    Query(f"3600 * {estimate(engine, c.KV_SLOW_GROWTH)}", f"stays, {WHOSE}"),
                    Query(f"3600 * {estimate(engine, c.KV_SLOW_UNEXPLAINED)}", f"unexplained, {WHOSE}"),
                    unit=share("of the pool an hour"),
                    none="Too little has been seen: it takes hours",
                ),
            ),
        ),
        Row(
            "Who feels it",
            (
                lines(
                    "Wait for memory, p50 and p99",
                    "From a request's first refused attempt to its success; absent while nobody has to wait.",
                    Query(quantile(0.5, wait, BY), f"p50, {WHOSE}"),
                    Query(quantile(0.99, wait, BY), f"p99, {WHOSE}"),
                    unit=of(c.ADMISSION_WAIT),
                    steps=slow,
                    none="No request has waited for memory",
                ),
                lines(
                    "One call for blocks, p50 and p99",
                    "How long a single call that takes blocks out of the free queue took.",
                    Query(quantile(0.5, engine(c.ALLOCATION_SECONDS, "_bucket"), BY), f"p50, {WHOSE}"),
                    Query(quantile(0.99, engine(c.ALLOCATION_SECONDS, "_bucket"), BY), f"p99, {WHOSE}"),
                    unit=of(c.ALLOCATION_SECONDS),
                    none=absent.HOOKS,
                ),
                lines(
                    "Requests",
                    "Requests that run and that wait; a queue alone is load, a queue that memory refuses is harm.",
                    Query(engine(c.REQUESTS_RUNNING), f"run, {WHOSE}"),
                    Query(engine(c.REQUESTS_WAITING), f"wait, {WHOSE}"),
                    Query(engine(c.WAITING_REFUSED), f"refused by memory, {WHOSE}"),
                    unit=of(c.REQUESTS_WAITING),
                    steps=queue,
                    none=absent.HOOKS,
                ),
                lines(
                    "Preemptions",
                    "Running requests that were put back because memory ran out; their work is done again.",
                    Query(rate(engine(c.REQUESTS_PREEMPTED)), f"preempted, {WHOSE}"),
                    unit=each_second(c.REQUESTS_PREEMPTED),
                    none="No engine here shows preemptions",
                ),
                lines(
                    "Rebuild",
                    "Prompt tokens computed again because their KV was lost, and what it costs of the step time.",
                    Query(engine(c.REBUILD), f"of prefill, {WHOSE}"),
                    Query(
                        f"{rate(engine(c.REBUILD_SECONDS))} / ({rate(engine(c.STEP_SECONDS))} > 0)",
                        f"of step time, {WHOSE}",
                    ),
                    unit=share("done again"),
                    steps=rebuilt,
                    none="No prefill was seen",
                    top=1,
                ),
                lines(
                    "Token progress",
                    "Tokens generated a second; work and no tokens is a standstill.",
                    Query(engine(c.TOKENS), WHOSE),
                    unit=of(c.TOKENS),
                    none=absent.HOOKS,
                ),
                lines(
                    "Without a token",
                    "Since a token was made while there is work; clients wait for nothing.",
                    Query(engine(c.STILL), WHOSE),
                    unit=of(c.STILL),
                    least=10,
                    none=absent.HOOKS,
                ),
                spans(
                    "What stands in the way",
                    "Why no token is scheduled, while none is.",
                    Query(engine(c.STALLED_BY), f"{{{{reason}}}}, {WHOSE}"),
                    none="Tokens flow, or no engine with hooks reports",
                    words={"1": ("stalled", "red")},
                ),
            ),
        ),
        Row(
            "Engines without hooks, by their own page",
            (
                lines(
                    "KV use by the engine's page",
                    "What the engine says of itself; leaks and owners can't be seen without hooks.",
                    Query(engine(c.SCRAPED_USAGE), WHOSE),
                    unit=share("of the pool"),
                    steps=above(policy.use.warn_ratio, policy.use.page_ratio),
                    none="No engine is scraped",
                    top=1,
                ),
                lines(
                    "Growth by the engine's page",
                    "How much the floor of its use rises in a minute.",
                    Query(engine(c.SCRAPED_GROWTH), WHOSE),
                    unit=SHARE_PER_MINUTE,
                    steps=grows,
                    none="No engine is scraped",
                ),
            ),
        ),
    )


BOARD = Board(
    "kvtide-engine",
    "kvtide / Engine",
    "The KV tide: how full the pool is, with what, how fast it fills, and who feels it.",
    rows,
)
