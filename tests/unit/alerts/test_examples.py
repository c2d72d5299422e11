"""What docs/alerts.md shows for autoscalers: YAML that is right, over series that are recorded, without a secret."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts import shards
from alerts.build import BUILT
from tests.bed.prometheus import program
from tests.unit.alerts.promql import RECORDED

PAGE = Path(__file__).parents[3] / "docs" / "alerts.md"
EXAMPLES = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)]


def of(kind: str) -> dict[str, Any]:
    (found,) = (each for each in EXAMPLES if each.get("kind") == kind or kind in each)
    return found


def keys(value: Any) -> Iterator[str]:
    for name, inner in value.items() if isinstance(value, dict) else (("", each) for each in value):
        yield str(name)
        if isinstance(inner, dict | list):
            yield from keys(inner)


def test_keda_scales_by_the_recorded_ratio() -> None:
    scaled = of("ScaledObject")
    assert scaled["apiVersion"] == "keda.sh/v1alpha1"
    spec = scaled["spec"]
    assert 0 < spec["minReplicaCount"] < spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
    told = trigger["metadata"]
    assert all(isinstance(value, str) for value in told.values()), "KEDA takes texts only"
    assert told["query"] in RECORDED
    assert float(told["threshold"]) == 1.0
    assert told["ignoreNullValues"] == "false", "absent is not zero"


def test_the_hpa_scales_by_what_the_adapter_gives_it() -> None:
    hpa, adapter = of("HorizontalPodAutoscaler"), of("externalRules")
    assert hpa["apiVersion"] == "autoscaling/v2"
    assert 0 < hpa["spec"]["minReplicas"] < hpa["spec"]["maxReplicas"]
    (metric,), (rule,) = hpa["spec"]["metrics"], adapter["externalRules"]
    assert metric["type"] == "External"
    assert metric["external"]["metric"]["name"] == rule["name"]["as"]
    assert metric["external"]["target"] == {"type": "Value", "value": "1"}
    assert rule["seriesQuery"] in RECORDED
    assert rule["metricsQuery"] in RECORDED


def test_series_that_the_page_names_are_recorded() -> None:
    named = {*re.findall(r"\b(?:engine|node|tenant|fleet):kvtide_\w+:\w+", PAGE.read_text())}
    assert "fleet:kvtide_scale_out:engines" in named
    assert named <= RECORDED.keys()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.get("kind", "adapter"))
def test_no_example_has_a_secret(example: dict[str, Any]) -> None:
    assert [name for name in keys(example) if re.search(r"token|password|secret|credential", name, re.IGNORECASE)] == []


SCALING = re.findall(r"```yaml\n(.*?)```", (PAGE.parent / "scaling.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("text", SCALING, ids=["shard", "above"])
def test_what_the_page_on_scaling_shows_is_read_by_promtool(text: str, tmp_path: Path) -> None:
    for rules in BUILT.glob("kvtide-*.yml"):
        shutil.copy(rules, tmp_path)
    (tmp_path / "prometheus.yml").write_text(text)
    command = [program("promtool"), "check", "config", str(tmp_path / "prometheus.yml")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_the_shards_give_what_is_asked_above_them() -> None:
    shard, above = (yaml.safe_load(text) for text in SCALING)
    (job,) = above["scrape_configs"]
    assert job["params"]["match[]"] == [shards.MATCH]
    assert job["job_name"] == shards.JOB
    assert "shard" in shard["global"]["external_labels"]
    # A node may come to another shard; the watchdog, the guard and what is absent are each shard's own.
    (dropped,) = shard["alerting"]["alert_relabel_configs"]
    assert dropped == {"source_labels": ["instance"], "regex": ".+", "target_label": "shard", "replacement": ""}
    (asked,) = re.findall(r'=~"(.+)"', shards.MATCH)
    read = {*re.findall(r"\b(?:fleet|tenant):kvtide_\w+:\w+", (BUILT / "kvtide-global.yml").read_text())}
    assert read <= RECORDED.keys()
    assert all(re.fullmatch(asked, name) for name in read)
