"""What engines without hooks say of themselves, as immutable values."""

from __future__ import annotations

from typing import Literal

import msgspec

# up: its page was read. down: no page came. bad_page: what came is not one. stale: the page is there, with nothing new.
ScrapePhase = Literal["up", "down", "bad_page", "stale"]


class ScrapedEngine(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One engine of one page. ``engine`` is its label: bounded, and unique among scraped engines.

    Numbers are None where the page does not say them, where what it says is impossible (``bad_values`` counts those by
    reason), and always unless ``phase`` is up. ``usage_ratio`` is the share of KV blocks that requests hold; ``held_*``
    are computed from it and right to a block. Counters are the engine's own: they begin again when it restarts
    (``resets`` counts that). Rates are of the last half minute; growth is of the floor of use, per minute, and
    ``growth_acceleration`` how much that changes in a minute. ``impossible``: a sentence on what the page says
    now that can't be, empty where nothing is; ``cannot`` says what this page can't tell, and why. ``cache_dtype``: of
    the KV cache, as the engine calls it.
    """

    engine: str
    url: str
    kind: str
    found: Literal["config", "process"]
    pid: int | None
    model: str
    index: str
    phase: ScrapePhase
    reason: str
    page_age_seconds: float | None
    scrapes: int
    failures: int
    scrape_seconds: float | None
    bad_values: dict[str, int]
    resets: int
    cannot: dict[str, str]
    impossible: str = ""
    cache_dtype: str = ""
    usage_ratio: float | None = None
    capacity_blocks: int | None = None
    block_tokens: int | None = None
    capacity_tokens: int | None = None
    capacity_bytes: int | None = None
    held_blocks: int | None = None
    held_tokens: int | None = None
    held_bytes: int | None = None
    running: int | None = None
    waiting: int | None = None
    swapped: int | None = None
    preemptions: int | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    prefix_hit_ratio: float | None = None
    growth_per_minute: float | None = None
    growth_acceleration: float | None = None


class PassedOver(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A server that was found and is not scraped."""

    pid: int
    reason: str


class ScrapedState(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """All engines that are scraped, by label. ``left_out``: engines beyond the number that is followed."""

    engines: tuple[ScrapedEngine, ...] = ()
    passed_over: tuple[PassedOver, ...] = ()
    left_out: int = 0
