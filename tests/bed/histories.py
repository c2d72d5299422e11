"""States as the metrics that an agent makes of them, and metrics as what a Prometheus would say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.parser import text_string_to_metric_families

from agent.state import AgentState
from exporters.exposition import Exposition
from tests.bed.prometheus import Sample


def samples_of(state: AgentState, *, job: str = "kvtide", instance: str = "node1:9477") -> Iterator[Sample]:
    """Yield what an agent with ``state`` exports on both its pages, as a Prometheus keeps it."""
    for detail in (False, True):
        page = Exposition(detail=detail).render(state, compressed=False).decode()
        yield from page_samples(page, state.at, job=job, instance=instance)


def page_samples(page: str, at: float, *, job: str, instance: str) -> Iterator[Sample]:
    """Yield the samples of a page of metrics that was scraped at ``at``."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            labels = {name: text for name, text in sample.labels.items() if text}  # empty is not there
            yield Sample(sample.name, labels | {"job": job, "instance": instance}, sample.value, at)


def as_pages(samples: Iterable[Sample]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the values by name and labels."""
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for each in samples}
