"""What the chart renders: valid objects, no privilege that nobody asked for, settings that the agent takes."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from agent.config import AgentConfig, load
from agent.policy.file import choose
from alerts.build import files
from dashboards.build import BUILT
from engine_hooks import __version__
from tests.bed import helm
from tests.bed.helm import Object, one
from tests.unit.kubernetes import crds
from tests.unit.kubernetes.conftest import objects_of
from tests.unit.kubernetes.pods import problems

KUBERNETES = "1.35"
OPERATOR = "monitoring.coreos.com/v1"


def validate(item: Object) -> None:
    """Raise where ``item`` is not what the API takes."""
    if item["apiVersion"] == OPERATOR:
        jsonschema.validate(item, crds.schema(item["kind"]))
    else:
        kubernetes_validate.validate(item, KUBERNETES, strict=True)


def agent_pod(name: str) -> dict[str, Any]:
    pod: dict[str, Any] = one(objects_of(name), "DaemonSet", "kvtide")["spec"]["template"]["spec"]
    return pod


def test_each_object_is_valid(objects: list[Object]) -> None:
    for item in objects:
        validate(item)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("DaemonSet", lambda spec: spec["template"]["spec"].update(hostPid=True)),
        ("NetworkPolicy", lambda spec: spec.update(ingres=[])),
        ("PodMonitor", lambda spec: spec["podMetricsEndpoints"][0].update(intervall="1s")),
        ("PodMonitor", lambda spec: spec["podMetricsEndpoints"][0].update(interval="fast")),
        ("PrometheusRule", lambda spec: spec["groups"][0]["rules"][0].pop("expr")),
    ],
)
def test_what_is_not_valid_is_found(kind: str, change: Callable[[Any], Any]) -> None:
    item = copy.deepcopy(next(each for each in objects_of("everything") if each["kind"] == kind))
    validate(item)
    change(item["spec"])
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(item)


@pytest.mark.parametrize("name", ["default", "tls"])
def test_an_agent_takes_no_privilege(name: str) -> None:
    assert [*problems(agent_pod(name))] == []


def test_an_agent_takes_those_that_the_values_name() -> None:
    pod = agent_pod("everything")
    assert [*problems(pod, root=True)] == []
    assert pod["hostPID"]
    assert "kvtide: root" in [*problems(pod)]


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda pod: pod.update(hostPID=True), "hostPID"),
        (lambda pod: pod["containers"][0]["securityContext"].update(privileged=True), "kvtide: privileged"),
        (lambda pod: pod["containers"][0]["securityContext"].pop("readOnlyRootFilesystem"), "kvtide: writable root"),
        (lambda pod: pod["containers"][0]["securityContext"].update(runAsUser=0), "kvtide: root"),
        (lambda pod: pod["containers"][0]["securityContext"].pop("seccompProfile"), "kvtide: no seccomp"),
        (
            lambda pod: pod["initContainers"][0]["securityContext"]["capabilities"]["add"].append("SYS_ADMIN"),
            "prepare: capabilities {'drop': ['ALL'], 'add': ['CHOWN', 'SYS_ADMIN']}",
        ),
        (
            lambda pod: pod["containers"][0]["resources"]["limits"].update({"nvidia.com/gpu": 1}),
            "kvtide: asks for nvidia.com/gpu",
        ),
        (
            lambda pod: pod["volumes"].append({"name": "root", "hostPath": {"path": "/"}}),
            "root: / of the node",
        ),
    ],
)
def test_a_privilege_is_found(change: Callable[[Any], Any], found: str) -> None:
    pod = copy.deepcopy(agent_pod("default"))
    change(pod)
    assert [*problems(pod)] == [found]


def test_settings_and_policy_are_what_the_agent_takes(objects: list[Object], tmp_path: Path) -> None:
    maps = [each for each in objects if each["kind"] == "ConfigMap" and "agent.yaml" in each["data"]]
    assert maps
    for each in maps:
        for file, text in each["data"].items():
            (tmp_path / file).write_text(text)
        config = load(tmp_path / "agent.yaml", {})
        assert isinstance(config, AgentConfig)
        assert config.link.socket == Path("/run/kvtide/agent.sock")
        assert config.http.address[0] == "0.0.0.0"
        if "policy.yaml" in each["data"]:
            assert config.policy == "/etc/kvtide/policy.yaml"
            choose(str(tmp_path / "policy.yaml"))
        else:
            choose(config.policy)


def test_a_change_of_settings_is_a_roll_out() -> None:
    def mark(*options: str) -> str:
        item = one(helm.rendered(*options), "DaemonSet", "kvtide")
        found: str = item["spec"]["template"]["metadata"]["annotations"]["kvtide.io/config"]
        return found

    assert mark() == mark("--set", "probes.periodSeconds=5")
    assert len({mark(), mark("--set", "policy.profile=latency"), mark("--set", "config.http.reload=true")}) == 3


def test_rules_are_those_that_are_built() -> None:
    built = files()
    for name in ("recording", "alerts", "names", "textbook", "global"):
        rule = one(objects_of("everything"), "PrometheusRule", f"kvtide-{name}")
        assert rule["spec"] == yaml.safe_load(built[f"kvtide-{name}.yml"])


def test_rules_of_an_own_policy_take_their_place(tmp_path: Path) -> None:
    own = tmp_path / "kvtide-alerts.yml"
    own.write_text("groups:\n- name: own\n  rules:\n  - {alert: Own, expr: 'up == 0 # {{ $value }}'}\n")
    found = helm.rendered("--set", "prometheusRule.enabled=true", "--set-file", f"prometheusRule.alerts={own}")
    assert one(found, "PrometheusRule", "kvtide-alerts")["spec"] == yaml.safe_load(own.read_text())
    assert one(found, "PrometheusRule", "kvtide-recording")["spec"] == yaml.safe_load(files()["kvtide-recording.yml"])


def test_boards_are_those_that_are_built() -> None:
    maps = [each for each in objects_of("everything") if "grafana_dashboard" in each["metadata"]["labels"]]
    shown = {file: json.loads(text) for each in maps for file, text in each["data"].items()}
    assert shown == {path.name: json.loads(path.read_text()) for path in BUILT.glob("*.json")}


def test_the_release_fits_where_helm_keeps_it(tmp_path: Path) -> None:
    done = helm.helm("package", str(helm.CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.iterdir()
    assert package.name == f"kvtide-{__version__}.tgz"
    # Links of the tree are files in the package; a Secret holds 1 MiB, with the manifest beside the chart.
    assert package.stat().st_size < 300_000
    packed = helm.rendered("--values", str(Path(__file__).parent / "values" / "everything.yaml"), chart=package)
    assert packed == objects_of("everything")


def test_the_prometheus_job_is_the_one_that_rules_go_by() -> None:
    endpoints = one(objects_of("everything"), "PodMonitor", "kvtide")["spec"]["podMetricsEndpoints"]
    assert [each["path"] for each in endpoints] == ["/metrics", "/metrics/detail"]
    first, second = ({each.get("targetLabel"): each for each in point["relabelings"]} for point in endpoints)
    assert (first["job"]["replacement"], second["job"]["replacement"]) == ("kvtide", "kvtide-detail")
    assert first["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
    assert endpoints[1]["metricRelabelings"] == [{"action": "replace", "targetLabel": "job", "replacement": "kvtide"}]
