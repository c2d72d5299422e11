"""One collector per subject: a pure function from the state to samples.

Adding one: a file with ``collect``, a line in :data:`COLLECTORS`, its metrics in the catalogue, a test.
"""

from __future__ import annotations

from exporters.collectors import (
    agent,
    allocation,
    allocator,
    delayed,
    device,
    driver_calls,
    encoder,
    engine,
    groups,
    hooks,
    host,
    kv,
    leaks,
    link,
    members,
    pins,
    pools,
    scraped,
    sources,
    speculation,
    support,
    tenants,
    tiers,
    verdicts,
    waiting,
    waterfall,
    work,
)
from exporters.collectors.base import Collect

COLLECTORS: tuple[Collect, ...] = (
    agent.collect,
    engine.collect,
    members.collect,
    allocator.collect,
    kv.collect,
    leaks.collect,
    delayed.collect,
    pins.collect,
    groups.collect,
    pools.collect,
    tenants.collect,
    allocation.collect,
    work.collect,
    speculation.collect,
    encoder.collect,
    tiers.collect,
    waiting.collect,
    support.collect,
    sources.collect,
    scraped.collect,
    device.collect,
    waterfall.collect,
    host.collect,
    driver_calls.collect,
    hooks.collect,
    link.collect,
    verdicts.collect,
)
