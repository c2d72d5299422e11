"""What is wrong with a pod's privileges, container by container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# Paths of a node that we mount, with whether it may be written there.
HOST_PATHS = {"/run/kvtide", "/var/lib/kvtide"}
OURS = {"kvtide", "kvtide-hooks", "prepare"}


def problems(pod: dict[str, Any], *, ours: frozenset[str] = frozenset(OURS), root: bool = False) -> Iterator[str]:
    """Yield what a pod's spec takes that it need not. ``ours``: containers that are looked at; ``root``: the agent may
    be user 0, have SYS_PTRACE and the host's pids, because the values ask for them.
    """
    for name in ("hostNetwork", "hostIPC", *(() if root else ("hostPID",))):
        if pod.get(name):
            yield name
    for volume in pod["volumes"]:
        path = volume.get("hostPath", {}).get("path")
        if path is not None and path not in HOST_PATHS:
            yield f"{volume['name']}: {path} of the node"
    for container in [*pod.get("initContainers", ()), *pod["containers"]]:
        if container["name"] in ours:
            yield from (f"{container['name']}: {each}" for each in _container(container, root=root))
        yield from (f"{container['name']}: {each}" for each in _mounts(container))


def _container(container: dict[str, Any], *, root: bool) -> Iterator[str]:
    security = container.get("securityContext", {})
    name, capabilities = container["name"], security.get("capabilities", {})
    allowed = {"prepare": {"CHOWN"}, "kvtide": {"SYS_PTRACE"} if root else set()}.get(name, set())
    if security.get("privileged"):
        yield "privileged"
    if security.get("allowPrivilegeEscalation") is not False:
        yield "may escalate"
    if security.get("readOnlyRootFilesystem") is not True:
        yield "writable root"
    if capabilities.get("drop") != ["ALL"] or not set(capabilities.get("add", ())) <= allowed:
        yield f"capabilities {capabilities}"
    if security.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield "no seccomp"
    may_be_root = name == "prepare" or (root and name == "kvtide")
    if not may_be_root and (security.get("runAsNonRoot") is not True or not security.get("runAsUser")):
        yield "root"
    resources = container.get("resources", {})
    for amounts in resources.values():
        yield from (f"asks for {what}" for what in amounts if what not in ("cpu", "memory"))
    if "memory" not in resources.get("limits", {}):
        yield "no limit of memory"


def _mounts(container: dict[str, Any]) -> Iterator[str]:
    """An engine must not be able to bind the agent's path, and sees nothing of the folder for people's orders."""
    for mount in container.get("volumeMounts", ()):
        if container["name"] in OURS:
            continue
        if mount["name"] == "kvtide-control":
            yield "sees the control socket"
        if mount["name"].startswith("kvtide-") and not mount.get("readOnly"):
            yield f"may write to {mount['name']}"
