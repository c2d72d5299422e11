"""What is added to a Deployment of vLLM: applied by the real kubectl, and to the examples."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from engine_hooks.settings import Settings
from tests.bed import helm
from tests.bed.helm import EXAMPLES, Object, one
from tests.unit.kubernetes.conftest import objects_of
from tests.unit.kubernetes.pods import problems
from tests.unit.kubernetes.test_rendered import KUBERNETES

KINDS = ("node", "sidecar")


def patch_of(name: str, kind: str) -> str:
    text: str = one(objects_of(name), "ConfigMap", "kvtide-patches")["data"][f"{kind}.yaml"]
    return text


def applied(name: str, kind: str, tmp_path: Path) -> Object:
    patch = tmp_path / "patch.yaml"
    patch.write_text(patch_of(name, kind))
    return helm.patched(EXAMPLES / kind / "deployment.yaml", patch)


def containers(deployment: Object) -> dict[str, Any]:
    pod = deployment["spec"]["template"]["spec"]
    return {each["name"]: each for each in [*pod["initContainers"], *pod["containers"]]}


@pytest.mark.parametrize(
    ("name", "kind"),
    [("default", "node"), ("everything", "node"), ("everything", "sidecar"), ("tls", "node"), ("tls", "sidecar")],
)
def test_a_patched_deployment_is_valid_and_takes_no_privilege(name: str, kind: str, tmp_path: Path) -> None:
    deployment = applied(name, kind, tmp_path)
    kubernetes_validate.validate(deployment, KUBERNETES, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    assert [*problems(pod)] == []
    paths = [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume]
    assert paths == (["/run/kvtide"] if kind == "node" else [])


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_deployment_had_stays(kind: str, tmp_path: Path) -> None:
    before = yaml.safe_load((EXAMPLES / kind / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    after = applied("everything", kind, tmp_path)["spec"]["template"]["spec"]
    (engine,), (was,) = after["containers"], before["containers"]
    assert [engine[key] for key in ("image", "args", "resources", "ports")] == [
        was[key] for key in ("image", "args", "resources", "ports")
    ]
    assert all(each in engine[key] for key in ("env", "volumeMounts") for each in was[key])
    assert all(each in after["volumes"] for each in before["volumes"])


@pytest.mark.parametrize(
    ("name", "kind", "uid"),
    [("default", "node", 65532), ("everything", "node", 0), ("everything", "sidecar", 65532)],
)
def test_the_hooks_find_the_agent_that_is_there(name: str, kind: str, uid: int, tmp_path: Path) -> None:
    found = containers(applied(name, kind, tmp_path))
    env = {each["name"]: each.get("value", "") for each in found["vllm"]["env"]}
    settings = Settings.from_environment(env)
    agent = found["kvtide"] if kind == "sidecar" else agent_of(name)
    assert settings.agent_uids == {uid}
    assert agent["securityContext"]["runAsUser"] == uid
    assert settings.socket == Path("/run/kvtide/agent.sock")
    assert settings.key_file == Path("/run/kvtide/agent.key")
    assert settings.levers == (frozenset() if name == "default" else {"watermark", "reclaim_orphans"})
    folder = env["PYTHONPATH"]
    assert found["kvtide-hooks"]["args"] == [folder]
    assert [each["mountPath"] for each in found["kvtide-hooks"]["volumeMounts"]] == [folder]


def agent_of(name: str) -> dict[str, Any]:
    pod = one(objects_of(name), "DaemonSet", "kvtide")["spec"]["template"]["spec"]
    found: dict[str, Any] = pod["containers"][0]
    return found


def test_a_sidecar_lives_as_long_as_the_engine(tmp_path: Path) -> None:
    found = containers(applied("sidecar", "sidecar", tmp_path))
    assert found["kvtide"]["restartPolicy"] == "Always"  # of an init container: it is up before, and ends after
    assert {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"} in found["kvtide"]["env"]
    assert "KVTIDE_SOCKET" in {each["name"] for each in found["server"]["env"]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_is_what_the_chart_makes(kind: str) -> None:
    made = helm.rendered("--set", f"sidecar.enabled={str(kind == 'sidecar').lower()}")
    text = one(made, "ConfigMap", "kvtide-patches")["data"][f"{kind}.yaml"]
    own = (EXAMPLES / kind / "patch.yaml").read_text()
    assert yaml.safe_load(own) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "vllm"},
        **yaml.safe_load(text),
    }
    (deployment,) = yaml.safe_load_all(helm.kubectl("kustomize", str(EXAMPLES / kind)))
    assert deployment["metadata"] == {"name": "vllm", "namespace": "llm"}
    kubernetes_validate.validate(deployment, KUBERNETES, strict=True)
    assert [*problems(deployment["spec"]["template"]["spec"])] == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda mount: mount.pop("readOnly"), "vllm: may write to kvtide-socket"),
        (lambda mount: mount.update(name="kvtide-control"), "vllm: sees the control socket"),
    ],
)
def test_an_engine_that_gets_too_much_is_found(change: Callable[[Any], Any], found: str, tmp_path: Path) -> None:
    pod = copy.deepcopy(applied("default", "node", tmp_path))["spec"]["template"]["spec"]
    change(next(each for each in pod["containers"][0]["volumeMounts"] if each["name"] == "kvtide-socket"))
    assert [*problems(pod)] == [found]
