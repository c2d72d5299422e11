"""Container and pod of a process, from its cgroup's path alone."""

from __future__ import annotations

import re

from agent.sources.host.state import Place

# How runtimes name a container's scope under systemd; conmon's scope is a container's minder, not the container.
_PREFIXES = {
    "docker": "docker",
    "cri-containerd": "containerd",
    "containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
    "libpod": "podman",
}
_ID = r"[0-9a-f]{64}"
_SCOPE = re.compile(rf"(?P<prefix>[a-z-]+)-(?P<id>{_ID})(?:\.scope)?")
_BARE = re.compile(_ID)
_ECS = re.compile(r"[0-9a-f]{32}-\d+")  # Amazon's container service: task id and a number
_LXC = re.compile(r"lxc\.payload[.-](?P<name>.+)")
# A static pod's uid is a hash without dashes; systemd's slices have underscores for dashes.
_POD = re.compile(r"pod(?P<uid>[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?:\.slice)?")
_QOS = re.compile(r"(?:^|-)(?P<qos>burstable|besteffort)(?:-pod|\.slice|$)")
_PARENTS = {"docker": "docker", "libpod_parent": "podman"}  # folders of the cgroupfs driver that tell the runtime


def place_of(path: str) -> Place:
    """Return where the process with this cgroup path runs; every part is empty where the path does not tell it."""
    runtime = container = pod = qos = unit = parent = ""
    for part in filter(None, path.split("/")):
        if found := _container(part, parent):
            runtime, container = found  # the innermost counts: a container may run others
        elif match := _POD.search(part):
            pod = _uid(match["uid"])
            # A guaranteed pod's folder lies beside those of the two other classes, under no class of its own.
            qos = _class_of(part) or qos or "guaranteed"
        elif "kubepods" in path and _class_of(part):
            qos = _class_of(part)
        elif part.endswith((".service", ".scope")):
            unit = part
        parent = part
    return Place(runtime=runtime, container=container, pod=pod, qos=qos if pod else "", unit="" if container else unit)


def _container(part: str, parent: str) -> tuple[str, str] | None:
    match = _SCOPE.fullmatch(part)
    if match:
        return (_PREFIXES[match["prefix"]], match["id"]) if match["prefix"] in _PREFIXES else None
    if _BARE.fullmatch(part) or _ECS.fullmatch(part):
        return _PARENTS.get(parent, "container"), part
    lxc = _LXC.fullmatch(part)
    if lxc or parent == "lxc":
        return "lxc", lxc["name"] if lxc else part
    return None


def _class_of(part: str) -> str:
    match = _QOS.search(part)
    return match["qos"] if match else ""


def _uid(text: str) -> str:
    return text.replace("_", "-")
