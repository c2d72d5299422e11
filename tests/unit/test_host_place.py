"""Container and pod from cgroup paths as runtimes write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.sources.host.place import place_of
from agent.sources.host.state import Place

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
UID = "2c48913c-b29f-11e7-9350-020968147796"
SLICED = UID.replace("-", "_")
STATIC = "e2e1a4a6b7c84d0f9a3b5c6d7e8f9012"


def place(runtime: str = "", container: str = "", **more: str) -> Place:
    return Place(runtime=runtime, container=container, **more)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"/docker/{ID}", place("docker", ID)),
        (f"/system.slice/docker-{ID}.scope", place("docker", ID)),
        (f"/system.slice/nerdctl-{ID}.scope", place("containerd", ID)),
        (f"/default/{ID}", place("container", ID)),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice/cri-containerd-{ID}.scope",
            place("containerd", ID, pod=UID, qos="burstable"),
        ),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICED}.slice/crio-{ID}.scope",
            place("cri-o", ID, pod=UID, qos="besteffort"),
        ),
        (
            f"/kubepods.slice/kubepods-pod{SLICED}.slice/cri-containerd-{ID}.scope",
            place("containerd", ID, pod=UID, qos="guaranteed"),
        ),
        (f"/kubepods/burstable/pod{UID}/{ID}", place("container", ID, pod=UID, qos="burstable")),
        (f"/kubepods/pod{UID}/{ID}", place("container", ID, pod=UID, qos="guaranteed")),
        (f"/kubepods/besteffort/pod{STATIC}/{ID}", place("container", ID, pod=STATIC, qos="besteffort")),
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
            f"kubelet-kubepods-burstable-pod{SLICED}.slice/cri-containerd-{ID}.scope",
            place("containerd", ID, pod=UID, qos="burstable"),
        ),
        (f"/docker/{OTHER}/kubelet/kubepods/pod{UID}/{ID}", place("container", ID, pod=UID, qos="guaranteed")),
        (f"/machine.slice/libpod-{ID}.scope/container", place("podman", ID)),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", place("podman", ID)),
        (f"/libpod_parent/{ID}", place("podman", ID)),
        (f"/machine.slice/libpod-conmon-{ID}.scope", place(unit=f"libpod-conmon-{ID}.scope")),
        (f"/../../system.slice/docker-{ID}.scope", place("docker", ID)),
        (f"/ecs/{STATIC}/{STATIC}-1234567890", place("container", f"{STATIC}-1234567890")),
        ("/lxc.payload.gpu-1/system.slice/vllm.service", place("lxc", "gpu-1")),
        ("/lxc/gpu-1", place("lxc", "gpu-1")),
        ("/system.slice/vllm.service", place(unit="vllm.service")),
        ("/user.slice/user-0.slice/session-3.scope", place(unit="session-3.scope")),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope", place(unit="run-r1.scope")),
        ("/system.slice/burstable.service", place(unit="burstable.service")),
        ("/", place()),
        ("", place()),
        (f"/kubepods/burstable/pod{UID}", place(pod=UID, qos="burstable")),
        (f"/system.slice/docker-{ID[:-1]}.scope", place(unit=f"docker-{ID[:-1]}.scope")),
    ],
)
def test_paths_of_runtimes(path: str, expected: Place) -> None:
    assert place_of(path) == expected


@given(st.text(alphabet="/-_.abpodkusliceruntm0123456789:" + "\n", max_size=200))
def test_any_path_has_an_answer(path: str) -> None:
    found = place_of(path)
    assert bool(found.runtime) == bool(found.container)
    assert not (found.unit and found.container)
