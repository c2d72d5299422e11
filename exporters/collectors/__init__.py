"""One collector per subject: a pure function from the state to samples.

Adding one: a file with ``collect``, a line in :data:`COLLECTORS`, its metrics in the catalogue, a test.
"""

from __future__ import annotations

from exporters.collectors import (
    agent,
    allocation,
    delayed,
    encoder,
    engine,
    groups,
    hooks,
    kv,
    leaks,
    link,
    members,
    pins,
    pools,
    sources,
    speculation,
    support,
    tenants,
    tiers,
    verdicts,
    waiting,
    work,
)
from exporters.collectors.base import Collect

COLLECTORS: tuple[Collect, ...] = (
    agent.collect,
    engine.collect,
    members.collect,
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
    hooks.collect,
    link.collect,
    verdicts.collect,
)
