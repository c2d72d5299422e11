"""The chart's values: documented, held to their schema, and what they switch on."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import yaml

from agent.config import AgentConfig
from agent.policy.file import PROFILES, of_profile
from deploy import values_schema
from deploy.values_docs import CHART, TARGET, render, rows
from engine_hooks import __version__
from tests.bed import helm
from tests.bed.helm import one
from tests.unit.kubernetes.conftest import NAMES, VALUES, objects_of

LEASES = ["get", "list", "create", "update"]


def test_helm_has_nothing_to_complain() -> None:
    for name in NAMES:
        values = () if name == "default" else ("--values", str(VALUES / f"{name}.yaml"))
        done = helm.helm("lint", "--strict", str(helm.CHART), *values)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("name", "told"), [("default", "{.data.node\\.yaml}"), ("sidecar", "{.data.sidecar\\.yaml}")])
def test_who_installs_it_is_told_what_is_next(name: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/dev/null")  # no cluster is asked
    values = () if name == "default" else ("--values", str(VALUES / f"{name}.yaml"))
    done = helm.helm("install", "kvtide", str(helm.CHART), "--dry-run=client", *values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert told in notes
    assert ("kvtide doctor" in notes) == (name == "default")


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_every_value_is_documented() -> None:
    assert TARGET.read_text() == render()
    documented = {row.key for row in rows((CHART / "values.yaml").read_text())}
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())

    def leaves(node: dict[str, Any], path: str) -> set[str]:
        if "properties" not in node:
            return {path}
        return {leaf for name, inner in node["properties"].items() for leaf in leaves(inner, f"{path}.{name}")}

    allowed = {leaf.removeprefix(".") for leaf in leaves(schema, "")} - {"global"}  # helm's own
    assert documented == allowed


def test_the_schema_takes_what_the_agent_takes() -> None:
    text = values_schema.TARGET.read_text()
    assert text == values_schema.render(text), "make generate"
    schema = json.loads(text)
    for profile in PROFILES:
        settings = {"config": AgentConfig(), "policy": of_profile(profile)}
        jsonschema.validate({name: each.model_dump(mode="json") for name, each in settings.items()}, schema)
    assert {name.removeprefix("config.") for name in schema["definitions"] if name.count(".") == 1} >= {
        *AgentConfig().model_dump()
    } - {"policy", "gone_after_periods"}


def test_a_value_without_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match=r"image\.tag: has no comment"):
        [*rows("image:\n  # its place\n  repository: a\n  tag: b\n")]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "imag.tag=1"), "imag"),
        (("--set", "image.digest=latest"), "digest"),
        (("--set", "http.port=80"), "port"),
        (("--set", "privileges.capabilities={SYS_PTRACE}"), "runAsUser"),
        (("--set", "privileges.runAsUser=0", "--set", "privileges.capabilities={SYS_ADMIN}"), "capabilities"),
        (("--set", "privileges.privileged=true"), "privileged"),
        (("--set", "socket.hostPath=/run/../etc"), "hostPath"),
        (("--set", "state.type=persistentVolumeClaim"), "existingClaim"),
        (("--set", "engines.disruptionBudget.create=true"), "matchLabels"),
        (("--set", "engines.levers={rm -rf}"), "levers"),
        (("--set", "engines.levers={reclaim_orphan}"), "levers"),
        (("--set", "config.htp.listen=0.0.0.0:9477"), "htp"),
        (("--set", "config.balancer.kubernetes.readiness_gates=true"), "readiness_gates"),
        (("--set", "config.balancer.mode=enforced"), "mode"),
        (("--set", "config.supervisor.engines[0].unite=vllm.service"), "unite"),
        (("--set", "policy.growth.page_a_minute=0.1"), "page_a_minute"),
        (("--set", "policy.actions.levers.watermarks=enforce"), "watermarks"),
        (("--set", "policy.use.warn_ratio=0.5"), "warn_ratio"),  # text to helm: --set-json, or a file of values
        (("--set", "monitor.interval=often"), "interval"),
        (("--set", "serviceMonitor.enabled=true"), "needs service.enabled"),
        (
            (
                "--set",
                "serviceMonitor.enabled=true",
                "--set",
                "service.enabled=true",
                "--set",
                "podMonitor.enabled=true",
            ),
            "scraped twice",
        ),
    ],
)
def test_a_wrong_value_is_refused(options: tuple[str, ...], said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        helm.rendered(*options)


def test_nothing_of_the_api_is_asked_for_by_default() -> None:
    kinds = {each["kind"] for each in objects_of("default")}
    assert kinds == {"ConfigMap", "DaemonSet", "NetworkPolicy", "ServiceAccount"}
    assert (
        one(objects_of("default"), "DaemonSet", "kvtide")["spec"]["template"]["spec"]["automountServiceAccountToken"]
        is False
    )
    assert one(objects_of("default"), "NetworkPolicy", "kvtide")["spec"]["egress"] == []


@pytest.mark.parametrize(
    ("setting", "rules"),
    [
        ("balancer.coordinator=kubernetes", {"leases": LEASES}),
        ("balancer.kubernetes.disruption_budget=b", {"poddisruptionbudgets": ["get"]}),
        ("balancer.kubernetes.readiness_gate=true", {"pods/status": ["patch"]}),
        ("supervisor.engines[0].by=kubernetes", {"pods": ["get", "list"], "pods/eviction": ["create"]}),
    ],
)
def test_each_setting_gets_its_rights_and_no_other(setting: str, rules: dict[str, list[str]]) -> None:
    found = helm.rendered("--set", f"config.{setting}", "--set", "engines.namespace=llm")
    role = one(found, "Role", "kvtide")
    assert role["metadata"]["namespace"] == "llm"
    assert {what: rule["verbs"] for rule in role["rules"] for what in rule["resources"]} == rules
    (subject,) = one(found, "RoleBinding", "kvtide")["subjects"]
    assert (subject["name"], subject["namespace"]) == ("kvtide", "kvtide")
    pod = one(found, "DaemonSet", "kvtide")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is True
    ports = {port["port"] for rule in one(found, "NetworkPolicy", "kvtide")["spec"]["egress"] for port in rule["ports"]}
    assert ports == {443, 6443}
    settings = yaml.safe_load(one(found, "ConfigMap", "kvtide")["data"]["agent.yaml"])
    assert settings["balancer"]["kubernetes"]["namespace"] == "llm"


def test_a_restart_by_another_than_kubernetes_needs_no_right() -> None:
    found = helm.rendered("--set", "config.supervisor.engines[0].by=webhook")
    assert not [each for each in found if each["kind"] == "Role"]


def test_a_sidecar_asks_nothing_of_the_api() -> None:
    settings = yaml.safe_load(one(objects_of("everything"), "ConfigMap", "kvtide-sidecar")["data"]["agent.yaml"])
    assert "balancer" not in settings
    assert "supervisor" not in settings


@pytest.mark.parametrize(
    ("name", "probe", "address"),
    [
        ("default", {"path": "/-/ready", "port": "kvtide", "scheme": "HTTP"}, "http://127.0.0.1:9477"),
        ("tls", None, "https://127.0.0.1:9443"),  # the kubelet has no password: it looks whether the port is open
    ],
)
def test_probes_and_commands_find_the_agent(name: str, probe: dict[str, str] | None, address: str) -> None:
    (container,) = one(objects_of(name), "DaemonSet", "kvtide")["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"].get("httpGet") == probe
    assert (container["readinessProbe"].get("tcpSocket") is None) == (probe is not None)
    assert {"name": "KVTIDE_URL", "value": address} in container["env"]
    assert container["ports"] == [{"name": "kvtide", "containerPort": int(address.rpartition(":")[2])}]


def test_a_claim_has_a_folder_for_each_node() -> None:
    (container,) = one(objects_of("everything"), "DaemonSet", "kvtide")["spec"]["template"]["spec"]["containers"]
    mount = next(each for each in container["volumeMounts"] if each["name"] == "kvtide-state")
    assert mount["subPathExpr"] == "$(KVTIDE_NODE)"
    assert {"name": "KVTIDE_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}} in container["env"]
