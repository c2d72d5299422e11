"""One collector per subject: a pure function from the state to samples.

Adding one: a file with ``collect``, a line in :data:`MOSTLY_BASE` or :data:`OF_DETAIL`, its metrics in the catalogue,
a test.
"""

from __future__ import annotations

from exporters.collectors import (
    actions,
    agent,
    allocation,
    allocator,
    balancer,
    compaction,
    delayed,
    device,
    driver_calls,
    encoder,
    engine,
    groups,
    hooks,
    host,
    http,
    kv,
    leaks,
    link,
    members,
    pins,
    pools,
    recorder,
    scores,
    scraped,
    signals,
    signals_around,
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

MOSTLY_BASE: tuple[Collect, ...] = (
    agent.collect,
    engine.collect,
    members.collect,
    allocator.collect,
    kv.collect,
    leaks.collect,
    delayed.collect,
    pins.collect,
    pools.collect,
    tenants.collect,
    allocation.collect,
    work.collect,
    speculation.collect,
    encoder.collect,
    tiers.collect,
    waiting.collect,
    compaction.collect,
    sources.collect,
    scraped.collect,
    device.collect,
    waterfall.collect,
    host.collect,
    hooks.collect,
    link.collect,
    signals.collect,
    signals_around.collect,
    scores.collect,
    verdicts.collect,
    recorder.collect,
    balancer.collect,
    actions.collect,
)

# Of these no family is on /metrics: who asks for that must not wait for them.
OF_DETAIL: tuple[Collect, ...] = (
    tenants.collect_detail,
    groups.collect,
    support.collect,
    device.collect_detail,
    allocator.collect_detail,
    waterfall.collect_detail,
    host.collect_detail,
    driver_calls.collect,
    http.collect,
    signals_around.collect_detail,
)

COLLECTORS = (*MOSTLY_BASE, *OF_DETAIL)
