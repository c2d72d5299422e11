"""The catalogue keeps Prometheus's rules, the collectors keep to the catalogue, and the docs are fresh."""

from __future__ import annotations

import re

import pytest

from engine_hooks.detail import Histogram
from exporters import catalogue, docs
from exporters.catalogue import CATALOGUE, Metric
from exporters.collectors import COLLECTORS
from exporters.collectors.base import Sample
from tests.unit.builders import make_engine, make_frontend, make_link, make_pool, make_state

UNITS_IN_NAMES = ("seconds", "bytes", "ratio")
FOREIGN_UNITS = re.compile(r"_(ms|us|millis\w*|micros\w*|minutes|hours|percent|pct|kb|mb|gb|kib|mib|gib|kilo\w*)(_|$)")
FORBIDDEN_LABELS = {"pid", "request", "request_id", "address", "instance", "job", "le", "quantile", "session"}


def collected(*engines: object, **changes: object) -> list[Sample]:
    state = make_state(*engines, **changes)
    return [sample for collect in COLLECTORS for sample in collect(state)]


def values(samples: list[Sample]) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(sample.metric.name, sample.labels): sample.value for sample in samples}


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_names_types_units_and_labels(metric: Metric) -> None:
    assert re.fullmatch(r"kvtide(_[a-z0-9]+)+", metric.name)
    assert metric.type in {"gauge", "counter", "histogram"}
    assert metric.name.endswith("_total") == (metric.type == "counter")
    assert not metric.name.endswith(("_sum", "_count", "_bucket", "_created"))
    assert not FOREIGN_UNITS.search(metric.name)
    base = metric.name.removesuffix("_total")
    for unit in UNITS_IN_NAMES:
        assert base.endswith(f"_{unit}") == (metric.unit == unit), "a base unit ends the name, and only where it is one"
    assert base.endswith("_info") == (metric.unit == "info")
    assert len(set(metric.labels)) == len(metric.labels)
    for label in metric.labels:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", label)
        assert label not in FORBIDDEN_LABELS
    assert metric.help.endswith(".")
    assert metric.help == metric.help.strip()
    assert "|" not in metric.help, "docs/metrics.md is a table"
    assert re.fullmatch(r"\d+\.\d+\.\d+", metric.since)


def test_names_are_unique() -> None:
    names = [metric.name for metric in CATALOGUE]
    assert len(set(names)) == len(names) > 30
    constants = [name for name, value in vars(catalogue).items() if isinstance(value, Metric)]
    assert len(constants) == len(names), "a subject's constant must not hide that of another"


def test_a_full_state_produces_every_metric_and_no_other() -> None:
    produced = {sample.metric.name for sample in collected()}
    assert produced == {metric.name for metric in CATALOGUE}


def test_every_sample_has_a_value_for_each_label_and_none_twice() -> None:
    samples = collected()
    for sample in samples:
        assert sample.metric in CATALOGUE
        assert len(sample.labels) == len(sample.metric.labels)
        assert all(isinstance(label, str) for label in sample.labels)
        assert isinstance(sample.value, Histogram) == (sample.metric.type == "histogram")
    assert len(values(samples)) == len(samples)


def test_what_hooks_caught_around_an_engine_is_told_by_role() -> None:
    raised = {"hook_errors": {"tenant": 3}, "hooks_off": {"tenant": "ValueError: no"}}
    servers = (make_frontend(**raised), make_frontend(rank=1, **raised))
    found = values(collected(make_engine(members=servers)))
    assert found["kvtide_hook_errors_total", ("m", "frontend/tenant")] == 6
    assert found["kvtide_hooks_off", ("m",)] == 3


def test_numbers_come_out_as_they_went_in() -> None:
    found = values(collected())
    mib = 1024 * 1024
    expected = {
        "kvtide_engine_up": 1,
        "kvtide_link_up": 1,
        "kvtide_engine_steps_total": 5000,
        "kvtide_requests_running": 8,
        "kvtide_requests_waiting": 3,
        "kvtide_kv_blocks_capacity": 1000,
        "kvtide_kv_blocks_held": 300,
        "kvtide_kv_blocks_held_max": 310,
        "kvtide_kv_blocks_cached_idle": 200,
        "kvtide_kv_blocks_empty": 500,
        "kvtide_kv_blocks_orphaned": 4,
        "kvtide_kv_blocks_over_freed": 1,
        "kvtide_kv_blocks_delayed": 40,
        "kvtide_kv_blocks_deferred": 7,
        "kvtide_kv_blocks_pinned": 24,
        "kvtide_kv_block_bytes": mib,
        "kvtide_kv_capacity_bytes": 1000 * mib,
        "kvtide_kv_held_bytes": 300 * mib,
        "kvtide_kv_cached_idle_bytes": 200 * mib,
        "kvtide_kv_empty_bytes": 500 * mib,
        "kvtide_kv_orphaned_bytes": 4 * mib,
        "kvtide_audits_total": 12,
        "kvtide_ledger_drift_references_total": 2,
        "kvtide_hooks_off": 1,
        "kvtide_engine_frames_dropped_total": 6,
        "kvtide_hook_seconds_total": 0.25,
        "kvtide_engine_step_seconds_total": 100.0,
    }
    assert {name: found[name, ("m",)] for name in expected} == expected
    assert found["kvtide_hook_errors_total", ("m", "step")] == 5
    assert found["kvtide_link_frames_rejected_total", ("malformed",)] == 2
    assert found["kvtide_link_peers_refused_total", ("key",)] == 4
    about = ("engine", "m", "", "", "", "", "kv_orphan", "confirmed", "page")
    assert found["kvtide_verdict", about] == 1
    assert found["kvtide_verdict", ("gpu", "", "", "1", "", "", "gpu_lost", "confirmed", "page")] == 1


def test_an_engine_that_is_not_live_has_only_its_identity_and_how_long_it_is_waited_for() -> None:
    quiet = {name for (name, labels) in values(collected()) if labels[:1] == ("quiet",)}
    assert quiet == {
        "kvtide_engine_info",
        "kvtide_engine_report_age_seconds",
        "kvtide_engine_start_time_seconds",
        "kvtide_engine_up",
        "kvtide_link_up",
    }
    assert values(collected())["kvtide_engine_report_age_seconds", ("quiet",)] == 9.0
    assert values(collected())["kvtide_engine_up", ("quiet",)] == 0


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("cached_idle", {"kvtide_kv_blocks_cached_idle", "kvtide_kv_cached_idle_bytes"}),
        ("empty", {"kvtide_kv_blocks_empty", "kvtide_kv_empty_bytes"}),
        ("orphaned", {"kvtide_kv_blocks_orphaned", "kvtide_kv_orphaned_bytes"}),
        ("over_freed", {"kvtide_kv_blocks_over_freed"}),
        ("delayed", {"kvtide_kv_blocks_delayed"}),
        ("deferred", {"kvtide_kv_blocks_deferred"}),
        ("pinned", {"kvtide_kv_blocks_pinned"}),
        (
            "block_bytes",
            {"kvtide_kv_block_bytes"}
            | {f"kvtide_kv_{part}_bytes" for part in ("capacity", "held", "cached_idle", "empty", "orphaned")},
        ),
    ],
)
def test_what_is_not_known_makes_no_sample_and_zero_makes_one(field: str, names: set[str]) -> None:
    full = {sample.metric.name for sample in collected(make_engine())}
    without = {sample.metric.name for sample in collected(make_engine(pool=make_pool(**{field: None})))}
    assert full - without == names
    zero = {sample.metric.name for sample in collected(make_engine(pool=make_pool(**{field: 0})))}
    assert zero == full


def test_an_engine_that_cannot_be_audited_says_so_and_nothing_of_audits() -> None:
    full = {sample.metric.name for sample in collected(make_engine())}
    without = collected(make_engine(audit_supported=False, audit_reason="because"))
    gone = {"kvtide_audit_exact", "kvtide_audits_total", "kvtide_ledger_drift_references_total"}
    assert full - {sample.metric.name for sample in without} == gone
    assert values(without)["kvtide_audit_supported", ("m",)] == 0


def test_readiness_and_counts_of_the_agent() -> None:
    found = values(collected(ready=False, not_ready_reason="x", link=make_link(connections=0)))
    assert found["kvtide_agent_ready", ()] == 0
    assert found["kvtide_link_connections", ()] == 0
    assert found["kvtide_link_frames_total", ()] == 1234
    assert found["kvtide_build_info", ("0.1.0",)] == 1


def test_the_docs_are_fresh_and_name_every_metric(capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.main(["--check"]) == 0
    assert capsys.readouterr().out == "docs/metrics.md is fresh\n"
    lines = docs.TARGET.read_text().splitlines()
    for metric in CATALOGUE:
        assert sum(f"| `{metric.name}` | {metric.type} |" in line for line in lines) == 1


def test_stale_docs_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "TARGET", tmp_path / "metrics.md")
    assert docs.main(["--check"]) == 1
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0
    (tmp_path / "metrics.md").write_text(docs.render() + "edited")
    assert docs.main(["--check"]) == 1
    assert "run make generate" in capsys.readouterr().out
