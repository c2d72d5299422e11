"""Prometheus's text format, version 0.0.4.

By hand, because a scrape must cost little: prometheus_client takes many times as long. A test compares with what
it makes of the same samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache, lru_cache
from itertools import accumulate

from engine_hooks.detail import Histogram
from exporters.catalogue import CATALOGUE, Metric
from exporters.collectors.base import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Text:
    """Makes the text of all samples again and again. A series that says what it said last time is not written anew."""

    def __init__(self) -> None:
        # By metric and labels: the last value and its lines. Of the last time only, so it does not grow.
        self._written: dict[str, dict[tuple[str, ...], tuple[float | Histogram, str]]] = {}

    def of(self, samples: Iterable[Sample]) -> str:
        """Return the exposition of ``samples``, families in the catalogue's order."""
        by_metric: defaultdict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            by_metric[sample.metric.name].append(sample)
        before, self._written = self._written, {}
        texts: list[str] = []
        for metric in CATALOGUE:
            if found := by_metric.get(metric.name):
                texts.append(_head(metric))
                known, written = before.get(metric.name, {}), {}
                for sample in found:
                    labels, value = sample.labels, sample.value
                    entry = known.get(labels)
                    if entry is None or entry[0] != value:
                        entry = (value, _series(metric, labels, value))
                    written[labels] = entry
                    texts.append(entry[1])
                self._written[metric.name] = written
        return "\n".join([*texts, ""])


def _series(metric: Metric, labels: tuple[str, ...], value: float | Histogram) -> str:
    names = _template(metric) % tuple(map(_escaped, labels))
    if isinstance(value, Histogram):
        return _histogram(metric.name, names, value)
    return f"{metric.name}{{{names}}} {float(value)}" if names else f"{metric.name} {float(value)}"


def _histogram(name: str, names: str, value: Histogram) -> str:
    lead = f'{name}_bucket{{{names},le="' if names else f'{name}_bucket{{le="'
    total = 0
    lines = []
    for bound, total in zip(_bounds(value.bounds), accumulate(value.counts), strict=True):
        lines.append(f'{lead}{bound}"}} {float(total)}')
    braces = f"{{{names}}}" if names else ""
    lines.append(f"{name}_count{braces} {float(total)}")
    lines.append(f"{name}_sum{braces} {value.sum}")
    return "\n".join(lines)


@cache
def _head(metric: Metric) -> str:
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.type}"


@cache
def _template(metric: Metric) -> str:
    return ",".join(f'{name}="%s"' for name in metric.labels)


@lru_cache(maxsize=64)
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in bounds), "+Inf")


@lru_cache(maxsize=4096)
def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
