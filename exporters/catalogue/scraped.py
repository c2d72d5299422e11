"""Engines without hooks: what their own pages say."""

from __future__ import annotations

from exporters.catalogue.base import ENGINE, Metric

SCRAPED_UP = Metric(
    "kvtide_scraped_up",
    "gauge",
    "boolean",
    ENGINE,
    "1 while this engine's page is read and says something new; at 0 its numbers are absent, /api/v1/state says why.",
)
SCRAPED_PAGE_AGE = Metric(
    "kvtide_scraped_page_age_seconds",
    "gauge",
    "seconds",
    ENGINE,
    "Age of the last page that could be read, by its own word where it has one.",
)
SCRAPED_SCRAPE_SECONDS = Metric(
    "kvtide_scraped_scrape_seconds", "gauge", "seconds", ENGINE, "How long getting and reading that page took."
)
SCRAPED_SCRAPES_TOTAL = Metric(
    "kvtide_scraped_scrapes_total", "counter", "scrapes", ENGINE, "Times that this engine's page was asked for."
)
SCRAPED_FAILURES_TOTAL = Metric(
    "kvtide_scraped_failures_total", "counter", "scrapes", ENGINE, "Of those, times when no page came or none it was."
)
SCRAPED_BAD_VALUES_TOTAL = Metric(
    "kvtide_scraped_bad_values_total",
    "counter",
    "values",
    ("engine", "reason"),
    "Values on the page that can't be and were not used: negative, above_one, too_large, not_finite.",
)
SCRAPED_RESETS_TOTAL = Metric(
    "kvtide_scraped_resets_total", "counter", "resets", ENGINE, "Times that the engine's counters began again."
)
SCRAPED_USAGE = Metric(
    "kvtide_scraped_kv_usage_ratio",
    "gauge",
    "ratio",
    ENGINE,
    "Share of KV blocks that requests hold, by its page.",
)
SCRAPED_CAPACITY_BLOCKS = Metric(
    "kvtide_scraped_kv_blocks_capacity", "gauge", "blocks", ENGINE, "KV blocks of the engine, where its page says them."
)
SCRAPED_HELD_BLOCKS = Metric(
    "kvtide_scraped_kv_blocks_held", "gauge", "blocks", ENGINE, "Share times capacity, right to a block."
)
SCRAPED_CAPACITY_TOKENS = Metric(
    "kvtide_scraped_kv_tokens_capacity", "gauge", "tokens", ENGINE, "Tokens that the KV pool has room for."
)
SCRAPED_HELD_TOKENS = Metric(
    "kvtide_scraped_kv_tokens_held", "gauge", "tokens", ENGINE, "Tokens that held blocks have room for."
)
SCRAPED_CAPACITY_BYTES = Metric(
    "kvtide_scraped_kv_capacity_bytes",
    "gauge",
    "bytes",
    ENGINE,
    "Bytes of the KV pool on one rank; absent unless the engine was told them.",
)
SCRAPED_HELD_BYTES = Metric("kvtide_scraped_kv_held_bytes", "gauge", "bytes", ENGINE, "Share times these bytes.")
SCRAPED_RUNNING = Metric("kvtide_scraped_requests_running", "gauge", "requests", ENGINE, "Requests that run.")
SCRAPED_WAITING = Metric("kvtide_scraped_requests_waiting", "gauge", "requests", ENGINE, "Requests that wait.")
SCRAPED_SWAPPED = Metric(
    "kvtide_scraped_requests_swapped", "gauge", "requests", ENGINE, "Requests swapped to host memory (vLLM V0)."
)
SCRAPED_PREEMPTIONS_TOTAL = Metric(
    "kvtide_scraped_preemptions_total", "counter", "preemptions", ENGINE, "Requests that lost their blocks to others."
)
SCRAPED_PROMPT_TOKENS_TOTAL = Metric(
    "kvtide_scraped_prompt_tokens_total", "counter", "tokens", ENGINE, "Prompt tokens processed."
)
SCRAPED_GENERATION_TOKENS_TOTAL = Metric(
    "kvtide_scraped_generation_tokens_total", "counter", "tokens", ENGINE, "Tokens generated."
)
SCRAPED_PREFIX_QUERIES_TOTAL = Metric(
    "kvtide_scraped_prefix_queries_total", "counter", "tokens", ENGINE, "Prompt tokens looked up in the prefix cache."
)
SCRAPED_PREFIX_HITS_TOTAL = Metric(
    "kvtide_scraped_prefix_hits_total", "counter", "tokens", ENGINE, "Of those, tokens found there."
)
SCRAPED_GROWTH = Metric(
    "kvtide_scraped_kv_growth_per_minute_ratio",
    "gauge",
    "ratio",
    ENGINE,
    "How much the floor of use rises in a minute, as a share of the pool, over the last three minutes.",
)
SCRAPED_ACCELERATION = Metric(
    "kvtide_scraped_kv_acceleration_per_minute_ratio",
    "gauge",
    "ratio",
    ENGINE,
    "How much that growth changes in a minute.",
)
SCRAPED_STALE = Metric(
    "kvtide_scraped_stale", "gauge", "boolean", ENGINE, "1 while its page comes and is not of now: see kvtide_verdict."
)
SCRAPED_IMPOSSIBLE = Metric(
    "kvtide_scraped_impossible", "gauge", "boolean", ENGINE, "1 while its page says a number that can't be."
)
SCRAPED_LEFT_OUT = Metric(
    "kvtide_scraped_engines_left_out", "gauge", "engines", (), "Engines on pages beyond the 64 that are followed."
)
SCRAPED_PASSED_OVER = Metric(
    "kvtide_scraped_servers_passed_over",
    "gauge",
    "servers",
    (),
    "Servers found on this host that are not scraped, such as those whose hooks report.",
)
