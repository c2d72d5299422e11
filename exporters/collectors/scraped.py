"""Engines without hooks: what their own pages say."""

from __future__ import annotations

from collections.abc import Iterator

from agent.sources.scrape.state import ScrapedEngine
from agent.state import AgentState
from exporters import catalogue as c
from exporters.collectors.base import Sample, known


def collect(state: AgentState) -> Iterator[Sample]:
    """Yield each scraped engine's numbers; nothing where the source is not up or nothing is scraped."""
    if state.scrape is None:
        return
    yield Sample(c.SCRAPED_LEFT_OUT, (), state.scrape.left_out)
    yield Sample(c.SCRAPED_PASSED_OVER, (), len(state.scrape.passed_over))
    for engine in state.scrape.engines:
        yield from _health(engine)
        yield from _numbers(engine)


def _health(engine: ScrapedEngine) -> Iterator[Sample]:
    labels = (engine.engine,)
    yield Sample(c.SCRAPED_UP, labels, engine.phase == "up")
    yield from known(c.SCRAPED_PAGE_AGE, labels, engine.page_age_seconds)
    yield from known(c.SCRAPED_SCRAPE_SECONDS, labels, engine.scrape_seconds)
    yield Sample(c.SCRAPED_SCRAPES_TOTAL, labels, engine.scrapes)
    yield Sample(c.SCRAPED_FAILURES_TOTAL, labels, engine.failures)
    yield Sample(c.SCRAPED_RESETS_TOTAL, labels, engine.resets)
    for reason, count in engine.bad_values.items():
        yield Sample(c.SCRAPED_BAD_VALUES_TOTAL, (engine.engine, reason), count)
    if engine.phase in ("up", "stale"):
        yield Sample(c.SCRAPED_STALE, labels, engine.phase == "stale")
        yield Sample(c.SCRAPED_IMPOSSIBLE, labels, bool(engine.impossible))


def _numbers(engine: ScrapedEngine) -> Iterator[Sample]:
    labels = (engine.engine,)
    yield from known(c.SCRAPED_USAGE, labels, engine.usage_ratio)
    yield from known(c.SCRAPED_CAPACITY_BLOCKS, labels, engine.capacity_blocks)
    yield from known(c.SCRAPED_HELD_BLOCKS, labels, engine.held_blocks)
    yield from known(c.SCRAPED_CAPACITY_TOKENS, labels, engine.capacity_tokens)
    yield from known(c.SCRAPED_HELD_TOKENS, labels, engine.held_tokens)
    yield from known(c.SCRAPED_CAPACITY_BYTES, labels, engine.capacity_bytes)
    yield from known(c.SCRAPED_HELD_BYTES, labels, engine.held_bytes)
    yield from known(c.SCRAPED_RUNNING, labels, engine.running)
    yield from known(c.SCRAPED_WAITING, labels, engine.waiting)
    yield from known(c.SCRAPED_SWAPPED, labels, engine.swapped)
    yield from known(c.SCRAPED_PREEMPTIONS_TOTAL, labels, engine.preemptions)
    yield from known(c.SCRAPED_PROMPT_TOKENS_TOTAL, labels, engine.prompt_tokens)
    yield from known(c.SCRAPED_GENERATION_TOKENS_TOTAL, labels, engine.generation_tokens)
    yield from known(c.SCRAPED_PREFIX_QUERIES_TOTAL, labels, engine.prefix_queries)
    yield from known(c.SCRAPED_PREFIX_HITS_TOTAL, labels, engine.prefix_hits)
    yield from known(c.SCRAPED_GROWTH, labels, engine.growth_per_minute)
    yield from known(c.SCRAPED_ACCELERATION, labels, engine.growth_acceleration)
