"""The bytes of /metrics and /metrics/detail: compared with golden files, rendered once per state, safe for any label.

``python -m tests.unit.test_exposition`` writes the golden files anew.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from engine_hooks.detail import Histogram
from exporters import catalogue
from exporters.catalogue import CATALOGUE
from exporters.collectors import COLLECTORS
from exporters.collectors.base import Sample
from exporters.exposition import Exposition
from exporters.text import Text
from tests.unit.builders import make_detail, make_engine, make_state
from tests.unit.details import make_histogram, make_work

GOLDEN = {
    detail: Path(__file__).parent / "golden" / name
    for detail, name in ((False, "metrics.txt"), (True, "metrics-detail.txt"))
}


def parsed(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@pytest.mark.parametrize("detail", GOLDEN)
def test_the_text_is_the_golden_one(detail: bool) -> None:
    assert Exposition(detail=detail).render(make_state(), compressed=False) == GOLDEN[detail].read_bytes()


@pytest.mark.parametrize("detail", GOLDEN)
def test_a_parser_reads_every_family_with_its_type_and_help(detail: bool) -> None:
    families = {family.name: family for family in text_string_to_metric_families(GOLDEN[detail].read_text())}
    here = [metric for metric in CATALOGUE if metric.detail is detail]
    assert set(families) == {metric.name.removesuffix("_total") for metric in here}
    for metric in here:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.type, metric.help)
        parts = ("_bucket", "_count", "_sum") if metric.type == "histogram" else ("",)
        assert {sample.name for sample in family.samples} == {metric.name + part for part in parts}


@pytest.mark.parametrize("detail", GOLDEN)
def test_families_come_in_the_catalogues_order(detail: bool) -> None:
    helps = [line.split()[2] for line in GOLDEN[detail].read_text().splitlines() if line.startswith("# HELP")]
    assert helps == [metric.name for metric in CATALOGUE if metric.detail is detail]


def test_one_state_is_rendered_once() -> None:
    exposition, state = Exposition(), make_state()
    plain = exposition.render(state, compressed=False)
    packed = exposition.render(state, compressed=True)
    assert exposition.render(state, compressed=False) is plain
    assert exposition.render(state, compressed=True) is packed
    assert gzip.decompress(packed) == plain


def test_a_new_state_is_rendered_anew_compressed_too() -> None:
    exposition = Exposition()
    exposition.render(make_state(), compressed=True)
    other = make_state(make_engine(running=99))
    packed = exposition.render(other, compressed=True)
    assert parsed(gzip.decompress(packed))["kvtide_requests_running"] == {(("engine", "m"),): 99.0}
    assert gzip.decompress(packed) == exposition.render(other, compressed=False)


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\\b", "a\\nb", '\\"', "ü 中", "", "{}", "a,b=c", "#"])
def test_hostile_labels_survive(name: str) -> None:
    text = Exposition().render(make_state(make_engine(engine=name)), compressed=False)
    assert parsed(text)["kvtide_kv_blocks_held"] == {(("engine", name),): 300.0}


# The parser splits lines where str.splitlines does, which Prometheus itself does not.
_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])) | st.text('"\\\nn{}=,# ')


@given(_TEXT)
def test_any_label_survives(name: str) -> None:
    text = Exposition().render(make_state(make_engine(engine=name, detail=None)), compressed=False)
    assert parsed(text)["kvtide_requests_waiting"] == {(("engine", name),): 3.0}


def theirs(samples: list[Sample]) -> bytes:
    """What prometheus_client makes of ``samples``."""
    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
    families = {}
    for sample in samples:
        metric, labels, value = sample.metric, sample.labels, sample.value
        family = families.setdefault(metric.name, kinds[metric.type](metric.name, metric.help, labels=metric.labels))
        if isinstance(value, Histogram):
            bounds, counts = [*map(str, value.bounds), "+Inf"], accumulate(value.counts)
            family.add_metric(labels, [*zip(bounds, counts, strict=True)], value.sum)
        else:
            family.add_metric(labels, float(value))

    class Families(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from families.values()

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Families())
    return generate_latest(registry)


@pytest.mark.parametrize("detail", GOLDEN)
def test_prometheus_client_says_the_same(detail: bool) -> None:
    state = make_state()
    samples = [sample for collect in COLLECTORS for sample in collect(state) if sample.metric.detail is detail]
    assert parsed(Exposition(detail=detail).render(state, compressed=False)) == parsed(theirs(samples))


@given(st.lists(st.tuples(_TEXT, _TEXT, st.floats(allow_nan=False)), max_size=4, unique_by=lambda row: row[:2]))
def test_prometheus_client_says_the_same_of_any_labels_and_values(rows: list[tuple[str, str, float]]) -> None:
    samples = [Sample(catalogue.TENANT_HELD, row[:2], row[2]) for row in rows]
    samples += [
        Sample(catalogue.TENANT_IDLE, row[:2], Histogram(bounds=(0.5, 1e-7 + 1), counts=(1, 0, 7), sum=row[2]))
        for row in rows
    ]
    both = Text().of(samples) + Text(detail=True).of(samples)
    assert parsed(both.encode()) == parsed(theirs(samples))


def test_a_histogram_is_cumulative_and_ends_with_everything() -> None:
    text = Text().of([Sample(catalogue.ADMISSION_WAIT, ("m",), make_histogram())])
    assert text.splitlines()[1:] == [
        "# TYPE kvtide_admission_wait_seconds histogram",
        'kvtide_admission_wait_seconds_bucket{engine="m",le="0.1"} 5.0',
        'kvtide_admission_wait_seconds_bucket{engine="m",le="1.0"} 8.0',
        'kvtide_admission_wait_seconds_bucket{engine="m",le="+Inf"} 10.0',
        'kvtide_admission_wait_seconds_count{engine="m"} 10.0',
        'kvtide_admission_wait_seconds_sum{engine="m"} 7.5',
    ]


if __name__ == "__main__":
    for page, file in GOLDEN.items():
        file.write_bytes(Exposition(detail=page).render(make_state(), compressed=False))


def test_what_was_written_before_changes_nothing() -> None:
    def said(running: int, *lengths: int) -> list[Sample]:
        waits = [Sample(catalogue.ADMISSION_WAIT, (f"m{n}",), make_histogram(counts=(n, 0, 0))) for n in lengths]
        return [Sample(catalogue.REQUESTS_RUNNING, ("m",), running), *waits]

    text = Text()
    for samples in (said(1, 5, 6), said(1, 5, 7), said(2), said(2, 7), said(2, 7)):
        assert text.of(samples) == Text().of(samples)


def test_what_is_written_again_is_as_if_it_were_written_first() -> None:
    shape = Histogram(bounds=(0.1, 1.0), counts=(1, 2, 3), sum=4.5)
    other = Histogram(bounds=(0.5,), counts=(7, 8), sum=1.5)
    work = make_work(request_seconds=shape)
    engines = [
        make_engine(
            engine=name, running=running, detail=replace(make_detail(), work=replace(work, request_seconds=value))
        )
        for name, running, value in (
            ("a", 1, shape),
            ("a", 1, shape),
            ("a", 2, replace(shape, counts=(1, 2, 9))),
            ("b", 2, other),
            ("a", 3, other),
            ("a%s", 3, shape),
        )
    ]
    again = Exposition()
    for engine in engines:
        state = make_state(engine)
        assert again.render(state, compressed=False) == Exposition().render(state, compressed=False)
    assert not any(labels[:1] == ("a",) for rows in again._text._written.values() for labels in rows), (
        "what goes is gone"
    )
