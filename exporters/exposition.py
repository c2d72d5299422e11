"""From a state to the bytes of /metrics, rendered once per state."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from agent.state import AgentState
from exporters.catalogue import CATALOGUE
from exporters.collectors import COLLECTORS
from exporters.collectors.base import Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST

Family = CounterMetricFamily | GaugeMetricFamily


class StateCollector(Collector):
    """A Prometheus collector over one immutable state: fresh metrics at each scrape, no global registry."""

    def __init__(self, state: AgentState) -> None:
        self._state = state

    def collect(self) -> Iterator[Family]:
        """Yield the families that have samples, in the catalogue's order."""
        return families(sample for collect in COLLECTORS for sample in collect(self._state))


def families(samples: Iterable[Sample]) -> Iterator[Family]:
    """Group samples into Prometheus families."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.metric.name, []).append(sample)
    for metric in CATALOGUE:
        found = by_name.get(metric.name)
        if not found:
            continue
        kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
        family: Family = kind(metric.name, metric.help, labels=metric.labels)
        for sample in found:
            family.add_metric(sample.labels, float(sample.value))
        yield family


class Exposition:
    """Caches the text of the last state, plain and compressed, so that many scrapers cost one rendering."""

    def __init__(self) -> None:
        self._state: AgentState | None = None
        self._plain = b""
        self._gzip: bytes | None = None

    def render(self, state: AgentState, *, compressed: bool) -> bytes:
        """Return the exposition of ``state``."""
        if state is not self._state:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(StateCollector(state))
            self._plain, self._gzip, self._state = generate_latest(registry), None, state
        if not compressed:
            return self._plain
        if self._gzip is None:
            self._gzip = gzip.compress(self._plain, compresslevel=1)
        return self._gzip
