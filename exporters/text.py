"""Prometheus's text format, version 0.0.4.

By hand, because a scrape must cost little: prometheus_client takes many times as long. A test compares with what
it makes of the same samples.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import lru_cache
from itertools import accumulate, chain, islice

from engine_hooks.detail import Histogram
from exporters.catalogue import CATALOGUE, Metric
from exporters.collectors.base import Sample

AT_ONCE = 256  # samples: a millisecond's work where they are histograms
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Text:
    """Makes the text of all samples again and again. A series that says what it said last time is not written anew, and
    of one that says something else only the value is. ``detail``: which of the two pages it is.
    """

    def __init__(self, *, detail: bool = False) -> None:
        self._detail = detail
        # By metric and labels: those of the last time, so it does not grow.
        self._written: dict[str, dict[tuple[str, ...], _Series]] = {}

    def of(self, samples: Iterable[Sample]) -> str:
        """Return the exposition of ``samples``, families in the catalogue's order."""
        steps = self.steps((samples,))
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return str(done.value)

    def steps(self, groups: Iterable[Iterable[Sample]]) -> Generator[None, None, str]:
        """The same of the samples of all ``groups``, in pieces of a millisecond or two at most."""
        by_metric = yield from self._by_metric(groups)
        for name in self._written.keys() - by_metric.keys():
            del self._written[name]
        texts: list[str] = []
        add = texts.append
        since = 0  # samples, the last time that others had their turn
        for name, metric in _METRICS[self._detail].items():
            found = by_metric.get(name)
            if found is None:
                continue
            add(_HEADS[name])
            written = self._written.setdefault(name, {})
            for sample in found:
                value, series = sample.value, written.get(sample.labels)
                if series is None:
                    series = written[sample.labels] = _Series(metric, sample.labels)
                elif series.value == value:
                    add(series.text)
                    continue
                if isinstance(value, Histogram):
                    series.text = series.of_histogram(value)
                else:
                    series.text = f"{series.lead}{float(value)}"
                series.value = value
                add(series.text)
            if len(written) > len(found):  # some have gone
                self._written[name] = {sample.labels: written[sample.labels] for sample in found}
            since += len(found)
            if since >= AT_ONCE:
                since = 0
                yield
        add("")
        return "\n".join(texts)

    def _by_metric(self, groups: Iterable[Iterable[Sample]]) -> Generator[None, None, dict[str, list[Sample]]]:
        """Return those of the samples that are on this page."""
        by_metric: defaultdict[str, list[Sample]] = defaultdict(list)
        detail = self._detail
        samples = chain.from_iterable(groups)
        # In batches, not one by one through a generator around theirs: that would cost a frame for each.
        while batch := tuple(islice(samples, AT_ONCE)):
            for sample in batch:
                metric = sample.metric
                if metric.detail is detail:
                    by_metric[metric.name].append(sample)
            yield
        return by_metric


class _Series:
    """One series as it was written last. ``lead``: what comes before a number; ``names``: its labels with values."""

    __slots__ = ("_bounds", "_form", "_name", "lead", "names", "text", "value")

    def __init__(self, metric: Metric, labels: tuple[str, ...]) -> None:
        self._name = metric.name
        self._bounds: tuple[float, ...] | None = None
        self._form = ""
        self.names = ",".join(f'{name}="{_escaped(label)}"' for name, label in zip(metric.labels, labels, strict=True))
        self.lead = f"{metric.name}{{{self.names}}} " if self.names else f"{metric.name} "
        self.value: float | Histogram | None = None
        self.text = ""

    def of_histogram(self, value: Histogram) -> str:
        """Return the lines of a histogram; the bounds are the same each time, as a rule."""
        if value.bounds != self._bounds:
            self._bounds, self._form = value.bounds, _form(self._name, self.names, value.bounds)
        counts = [*map(float, accumulate(value.counts))]
        return self._form % (*counts, counts[-1], value.sum)


def _form(name: str, names: str, bounds: tuple[float, ...]) -> str:
    """Return the lines of a histogram's series with %s in the place of each value: its buckets, count and sum."""
    lead = f"{name}_bucket{{{names},le=" if names else f"{name}_bucket{{le="
    braces = f"{{{names}}}" if names else ""
    lines = [f'{lead}"{bound}"}}' for bound in _bounds(bounds)]
    return "\n".join(
        f"{line.replace('%', '%%')} %s" for line in (*lines, f"{name}_count{braces}", f"{name}_sum{braces}")
    )


def _head(metric: Metric) -> str:
    text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {metric.name} {text}\n# TYPE {metric.name} {metric.type}"


@lru_cache(maxsize=64)
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in bounds), "+Inf")


def _escaped(label: str) -> str:
    # Not cached: it is asked once for each new series, and a cache would keep the names of thousands of gone engines.
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_METRICS = {
    detail: {metric.name: metric for metric in CATALOGUE if metric.detail is detail} for detail in (False, True)
}
_HEADS = {metric.name: _head(metric) for metric in CATALOGUE}
