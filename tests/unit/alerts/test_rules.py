"""The rules, judged by the real promtool at 15, 30 and 60 s scrapes: each alert fires on its fault and on no other."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.policy.types import DEFAULT, Policy
from alerts import build, recording
from alerts.rule import RESPOND_WITHIN
from engine_hooks.core.allocation import WAIT_SECONDS
from exporters import catalogue as c
from exporters.catalogue import Metric
from tests.bed.prometheus import NEWER, program
from tests.unit.alerts.cases import CASES, HEALTHY, E
from tests.unit.alerts.cases.base import G
from tests.unit.alerts.promtool import MINUTES, RULES, Series, asked_of, between, of, run, verdict

SCRAPES = (15, 30, 60)
# Prometheus 3, at the scrape that gives its left-open windows the fewest samples.
PROGRAMS = [
    *((interval, False) for interval in SCRAPES),
    pytest.param(60, True, marks=pytest.mark.skipif(not NEWER.exists(), reason="no Prometheus 3 here")),
]


def rules() -> Iterator[dict[str, Any]]:
    for name in (*RULES, "kvtide-names.yml"):
        for group in yaml.safe_load((build.BUILT / name).read_text())["groups"]:
            yield from group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules() if "alert" in rule}


def test_what_is_committed_is_what_is_built() -> None:
    for name, text in build.files().items():
        assert (build.BUILT / name).read_text() == text, f"{name}: make generate"


@pytest.mark.parametrize(("_", "newer"), PROGRAMS[-2:])
def test_promtool_accepts_every_file(_: int, newer: bool) -> None:
    promtool = program("promtool", newer=newer)
    files = [str(build.BUILT / name) for name in (*RULES, "kvtide-names.yml", "kvtide-global.yml")]
    subprocess.run([promtool, "check", "rules", *files], check=True, capture_output=True, timeout=60)
    for name in ("prometheus.yml", "prometheus-fast.yml", "prometheus-detail.yml"):
        subprocess.run(
            [promtool, "check", "config", str(build.BUILT / name)],
            check=True,
            capture_output=True,
            timeout=60,
        )


@pytest.mark.parametrize("profile", ["default", "latency", "throughput", "textbook"])
def test_rules_are_sound_for_every_profile(profile: str, tmp_path: Path) -> None:
    for name, text in build.files(Policy(profile=profile)).items():
        if name in (*RULES, "kvtide-names.yml"):
            file = tmp_path / name
            file.write_text(text)
            subprocess.run([program("promtool"), "check", "rules", file], check=True, capture_output=True, timeout=60)


def test_each_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    fires = {case.alert for case in CASES if case.fires}
    quiet = {case.alert for case in CASES if not case.fires} | {"KvtideWatchdog"}
    assert (ALERTS.keys() - fires, ALERTS.keys() - quiet) == (set(), set())
    assert (fires | quiet) <= ALERTS.keys()


@pytest.mark.parametrize(("interval", "newer"), PROGRAMS)
def test_each_alert_fires_on_its_fault_and_on_nothing_else(interval: int, newer: bool, tmp_path: Path) -> None:
    run(tmp_path, [*asked_of(CASES, interval)], interval, newer=newer)


def test_each_alert_is_the_same_where_the_scrape_adds_labels(tmp_path: Path) -> None:
    """As an operator does: what has been summed up and what has not must meet all the same."""
    run(tmp_path, [*asked_of(CASES, 60, namespace="kvtide", rack="a")], 60)


@pytest.mark.parametrize(("interval", "newer"), PROGRAMS)
def test_a_sound_engine_fires_nothing(interval: int, newer: bool, tmp_path: Path) -> None:
    firing = 'ALERTS{alertstate="firing",alertname!="KvtideWatchdog",alertname!~"Textbook.*"}'
    test = {
        "interval": f"{interval}s",
        "input_series": [
            replace(each, labels={"instance": name} | dict(each.labels)).as_yaml(interval, 60 * MINUTES)
            for name, series in HEALTHY
            for each in series
        ],
        "promql_expr_test": [{"expr": f"count_over_time({firing}[1d])", "eval_time": f"{MINUTES}m", "exp_samples": []}],
    }
    run(tmp_path, [test], interval, newer=newer)


def hidden(metric: Metric, value: float, **labels: str) -> Series:
    """What nobody tells between the 25th minute and the 27th."""
    return of(metric, lambda at: None if 1500 <= at < 1620 else value, **labels)


def test_a_page_goes_on_while_what_it_is_about_can_not_be_seen(tmp_path: Path) -> None:
    """It would end, and page again two minutes later."""
    on_the_way = {"peer": "p", "direction": "send"}
    pages: dict[str, tuple[str, dict[str, str], list[Series]]] = {
        "KvtideBlocksOverFreed": ("kv_over_freed", E, [hidden(c.KV_OVER_FREED, 3, **E)]),
        "KvtideEngineStalled": ("kv_stall", E, [hidden(c.STILL, 90, **E)]),
        "KvtidePoolUnderPressure": ("kv_pressure", E, [hidden(c.KV_USE, 0.99, **E), hidden(c.HARM, 1, **E)]),
        "KvtideTransfersFillPool": (
            "kv_delayed_free",
            E,
            [hidden(c.DELAYED_BLOCKS, 200, **E, **on_the_way), hidden(c.KV_CAPACITY, 1000, **E)],
        ),
        "KvtideDeviceFullSoon": ("device_growth", G, [hidden(c.GPU_USE, 0.97, **G)]),
    }
    tests = []
    for alert, (kind, about, series) in pages.items():
        held = of(c.VERDICT_HELD, between(1, 1500, 1620), kind=kind, **about)
        firing = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
        tests.append(
            {
                "name": alert,
                "interval": "15s",
                "input_series": [
                    each.as_yaml(15, 1800)
                    for each in (*series, held, of(c.VERDICT, 1, kind=kind, tier="page", phase="confirmed", **about))
                ],
                "promql_expr_test": [
                    # One alert, at each of the last ten minutes' looks.
                    {
                        "expr": f"count by (alertname) (count_over_time({firing}[10m]){least})",
                        "eval_time": "30m",
                        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}],
                    }
                    for least in ("", " >= 40")
                ],
            }
        )
    run(tmp_path, tests, 15)


def test_promtool_says_where_an_alert_does_not_fire(tmp_path: Path) -> None:
    quiet = next(case for case in CASES if not case.fires)
    with pytest.raises(AssertionError):
        run(tmp_path, [*asked_of([replace(quiet, fires=True)], 15)], 15)


def told(alert: str, *series: Any, labels: dict[str, str], annotations: dict[str, str]) -> dict[str, Any]:
    rule = ALERTS[alert]
    same = {name: rule["labels"][name] for name in ("severity", "respond_within", "page", "condition")}
    return {
        "interval": "15s",
        "input_series": [each.as_yaml(15, 60 * MINUTES) for each in series],
        "alert_rule_test": [
            {
                "eval_time": f"{MINUTES}m",
                "alertname": alert,
                "exp_alerts": [{"exp_labels": same | labels, "exp_annotations": annotations}],
            }
        ],
    }


def test_what_people_read(tmp_path: Path) -> None:
    where = {"instance": "node-a:9477", "job": "kvtide", "engine": "m", "gpu": "none"}
    run(
        tmp_path,
        [
            told(
                "KvtideOutOfMemory",
                verdict("oom", process="worker/0"),
                labels=where | {"kind": "oom", "process": "worker/0"},
                annotations={
                    "summary": "m worker/0: out of memory",
                    "description": "An allocation of m worker/0 on node-a:9477 failed for good in the last 10 minutes, "
                    "or the kernel killed it for memory. kvtide status says why: truly out, in pieces, taken by "
                    "others, free but unusable, or the host's memory. A bundle of what led to it is on the node.",
                    "runbook_url": "docs/runbooks/oom.md",
                    "dashboard": "/d/kvtide-allocator?var-instance=node-a%3A9477&var-engine=m",
                },
            ),
            told(
                "KvtideBlocksOrphaned",
                of(c.KV_ORPHANED, 15, **E),
                of(c.KV_CAPACITY, 1000, **E),
                labels=where,
                annotations={
                    "summary": "m: 1.5% of the KV pool has leaked",
                    "description": "1.5% of the KV blocks of m on node-a:9477 are held by no request, for 10 minutes. "
                    "They come back by a restart or by reclaiming them; the board says whose they were.",
                    "runbook_url": "docs/runbooks/kv_orphan.md",
                    "dashboard": "/d/kvtide-leaks?var-instance=node-a%3A9477&var-engine=m",
                },
            ),
            told(
                "KvtideResidueLarge",
                of(c.KV_RESIDUE, 51e6, **E),
                labels={"instance": "node-a:9477", "engine": "none", "gpu": "none"},
                annotations={
                    "summary": "node-a:9477: 51MB of KV stay after interrupted requests",
                    # In the unit of the threshold: 48.64 MiB would not look like more than 50 MB.
                    "description": "Interrupted drafts and cancelled transfers leave 51MB behind on node-a:9477 for 10 "
                    "minutes, more than 50 MB.",
                    "runbook_url": "docs/runbooks/spec_residue.md",
                    "dashboard": "/d/kvtide-leaks?var-instance=node-a%3A9477",
                },
            ),
        ],
        15,
    )


def test_a_link_of_an_alert_on_the_fleet_chooses_no_node(tmp_path: Path) -> None:
    """One without a name would leave the board's panels empty."""
    notes = ALERTS["KvtideAgentsAbsent"]["annotations"]
    run(
        tmp_path,
        [
            told(
                "KvtideAgentsAbsent",
                labels={"engine": "none", "gpu": "none", "job": "kvtide"},
                annotations=notes | {"dashboard": "/d/kvtide-fleet?"},
            )
        ],
        15,
    )


def test_every_alert_says_who_how_soon_and_where_to_look() -> None:
    for name, rule in ALERTS.items():
        labels, notes = rule["labels"], rule["annotations"]
        assert labels["respond_within"] == RESPOND_WITHIN[labels["severity"]], name
        assert labels["page"] == ("no" if labels["severity"] == "warning" else "yes"), name
        assert {"condition", "engine", "gpu"} <= labels.keys(), name
        assert notes.keys() == {"summary", "description", "runbook_url", "dashboard"}, name
        assert "{{ $labels.engine }}{{ $labels.process }}" not in notes["summary"], name


def test_what_is_short_of_four_scrapes_is_not_used() -> None:
    """At 60 s, rate and increase need four samples."""
    minutes = {"m": 1, "h": 60}
    for rule in rules():
        for number, unit in re.findall(r"\[(\d+)([mh])\]", rule["expr"]):
            assert int(number) * minutes[unit] >= 4, rule


def test_the_engines_metrics_are_those_of_the_catalogue() -> None:
    known = {metric.name for metric in c.CATALOGUE}
    for rule in rules():
        for name in re.findall(r"(?<![:\w\"])kvtide_\w+(?![:\w])", rule["expr"]):
            assert re.sub(r"_(bucket|count|sum)$", "", name) in known, rule


def test_slow_requests_are_counted_by_a_bucket_that_exists() -> None:
    assert {*c.ADMISSION_WAIT.bounds} <= {*WAIT_SECONDS}
    for profile in ("default", "latency", "throughput"):
        policy = Policy(profile=profile)
        slow = recording.slow_seconds(policy)
        assert slow >= policy.allocator.latency_page_seconds
        assert slow in c.ADMISSION_WAIT.bounds
    assert recording.slow_seconds(DEFAULT) == 0.5
