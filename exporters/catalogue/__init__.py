"""The metric catalogue: every metric that kvtide exports, once. Collectors, docs, dashboards and rules read it.

One file per subject; their names are names of this package, too. Adding a subject: a file, its star import, its name
in :data:`_SUBJECTS`.
"""

# ruff: noqa: F403
from __future__ import annotations

from exporters.catalogue import (
    actions,
    agent,
    allocation,
    allocator,
    balancer,
    compaction,
    device,
    driver_calls,
    encoder,
    engine,
    groups,
    hooks,
    host,
    http,
    kv,
    link,
    members,
    recorder,
    retained,
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
from exporters.catalogue.actions import *
from exporters.catalogue.agent import *
from exporters.catalogue.allocation import *
from exporters.catalogue.allocator import *
from exporters.catalogue.balancer import *
from exporters.catalogue.base import Metric as Metric
from exporters.catalogue.compaction import *
from exporters.catalogue.device import *
from exporters.catalogue.driver_calls import *
from exporters.catalogue.encoder import *
from exporters.catalogue.engine import *
from exporters.catalogue.groups import *
from exporters.catalogue.hooks import *
from exporters.catalogue.host import *
from exporters.catalogue.http import *
from exporters.catalogue.kv import *
from exporters.catalogue.link import *
from exporters.catalogue.members import *
from exporters.catalogue.recorder import *
from exporters.catalogue.retained import *
from exporters.catalogue.scores import *
from exporters.catalogue.scraped import *
from exporters.catalogue.signals import *
from exporters.catalogue.signals_around import *
from exporters.catalogue.sources import *
from exporters.catalogue.speculation import *
from exporters.catalogue.support import *
from exporters.catalogue.tenants import *
from exporters.catalogue.tiers import *
from exporters.catalogue.verdicts import *
from exporters.catalogue.waiting import *
from exporters.catalogue.waterfall import *
from exporters.catalogue.work import *

_SUBJECTS = (
    agent,
    engine,
    members,
    allocator,
    kv,
    retained,
    groups,
    tenants,
    allocation,
    work,
    speculation,
    encoder,
    tiers,
    waiting,
    compaction,
    support,
    sources,
    device,
    waterfall,
    host,
    scraped,
    driver_calls,
    hooks,
    link,
    http,
    signals,
    signals_around,
    scores,
    verdicts,
    recorder,
    balancer,
    actions,
)

CATALOGUE: tuple[Metric, ...] = tuple(
    value for subject in _SUBJECTS for value in vars(subject).values() if isinstance(value, Metric)
)
