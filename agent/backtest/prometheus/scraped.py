"""Engines without hooks that an agent read itself, from that agent's metrics."""

from __future__ import annotations

from agent.backtest.prometheus.moment import Moment
from agent.sources.scrape.state import ScrapedEngine

_REASON = "its metrics do not say more"
_IMPOSSIBLE = "Its page said a number that can't be; which one its metrics do not say."

_FRESH_SECONDS = 30.0  # a page that came so lately is there: it is not up because it says nothing new


def scraped_of(name: str, engine: Moment) -> ScrapedEngine | None:
    """Return the engine ``name``; None where the metrics have none."""
    up = engine.number("kvtide_scraped_up")
    if up is None:
        return None
    stale = engine.number("kvtide_scraped_stale") == 1
    impossible = engine.number("kvtide_scraped_impossible") == 1

    def count(what: str) -> int | None:
        return engine.count(f"kvtide_scraped_{what}")

    def number(what: str) -> float | None:
        return engine.number(f"kvtide_scraped_{what}")

    age = number("page_age_seconds")
    stale = age is not None and age < _FRESH_SECONDS
    return ScrapedEngine(
        engine=name,
        url=name,
        kind="",
        found="config",
        pid=None,
        model="",
        index="",
        phase="up" if up == 1 else "stale" if stale else "down",
        reason="" if up == 1 else _REASON,
        page_age_seconds=number("page_age_seconds"),
        scrapes=count("scrapes_total") or 0,
        failures=count("failures_total") or 0,
        scrape_seconds=number("scrape_seconds"),
        bad_values=engine.by("reason", "kvtide_scraped_bad_values_total"),
        resets=count("resets_total") or 0,
        cannot={},
        impossible=_IMPOSSIBLE if impossible else "",
        usage_ratio=number("kv_usage_ratio"),
        capacity_blocks=count("kv_blocks_capacity"),
        capacity_tokens=count("kv_tokens_capacity"),
        capacity_bytes=count("kv_capacity_bytes"),
        held_blocks=count("kv_blocks_held"),
        held_tokens=count("kv_tokens_held"),
        held_bytes=count("kv_held_bytes"),
        running=count("requests_running"),
        waiting=count("requests_waiting"),
        swapped=count("requests_swapped"),
        preemptions=count("preemptions_total"),
        prompt_tokens=count("prompt_tokens_total"),
        generation_tokens=count("generation_tokens_total"),
        prefix_queries=count("prefix_queries_total"),
        prefix_hits=count("prefix_hits_total"),
        growth_per_minute=number("kv_growth_per_minute_ratio"),
        growth_acceleration=number("kv_acceleration_per_minute_ratio"),
    )
