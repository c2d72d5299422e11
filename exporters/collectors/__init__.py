"""One collector per subject: a pure function from the state to samples.

Adding one: a file with ``collect``, a line in :data:`COLLECTORS`, its metrics in the catalogue, a test.
"""

from __future__ import annotations

from exporters.collectors import agent, engine, hooks, kv, link, verdicts
from exporters.collectors.base import Collect

COLLECTORS: tuple[Collect, ...] = (
    agent.collect,
    engine.collect,
    kv.collect,
    hooks.collect,
    link.collect,
    verdicts.collect,
)
