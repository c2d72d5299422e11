"""The part of Kubernetes' API that the supervisor uses: pods, their controller's next ones, evictions and a budget."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.unit.balancer.kube_api import PODS, KubeApi

STARTED = 1_700_000_000.0


class PodApi(KubeApi):
    """A ReplicaSet's pods. ``budget``: how many more may be evicted, None: any number. ``controlled``: whether they
    have a controller. An evicted pod goes at once; another comes, ready when ``ready`` says so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, dict[str, Any]] = {}
        self.budget: int | None = None
        self.controlled = True
        self.ready = True
        self.evicted: list[dict[str, Any]] = []
        self._numbers = itertools.count()

    def add(self, name: str = "", *, created: str = "2023-11-14T22:10:00Z", app: str = "llama") -> str:
        number = next(self._numbers)
        name = name or f"{app}-{number}"
        owner = {"kind": "ReplicaSet", "name": app, "uid": f"rs-{app}", "controller": True}
        self.pods[name] = {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "uid": f"uid-{number}",
                "labels": {"app": app, "apps.kubernetes.io/pod-index": str(number)},
                "creationTimestamp": created,
                "ownerReferences": [owner] if self.controlled else [],
            },
            "status": {"conditions": [{"type": "Ready", "status": "True" if self.ready else "False"}]},
        }
        return name

    def act(self, method: str, path: str, kind: str, body: Any) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(path)
        if self.status:
            return super().act(method, path, kind, body)
        if parts.path == PODS.rstrip("/") and method == "GET":
            wanted = dict(term.split("=") for term in parse_qs(parts.query)["labelSelector"][0].split(","))
            items = [pod for pod in self.pods.values() if wanted.items() <= pod["metadata"]["labels"].items()]
            return 200, {"kind": "PodList", "items": items}
        name, _, what = parts.path.removeprefix(PODS).partition("/")
        if name not in self.pods:
            return 404, {"message": f'pods "{name}" not found'}
        if method == "POST" and what == "eviction":
            return self._evict(name, body)
        return 200, self.pods[name]

    def _evict(self, name: str, body: Any) -> tuple[int, dict[str, Any]]:
        meta = self.pods[name]["metadata"]
        if body["deleteOptions"]["preconditions"]["uid"] != meta["uid"]:
            return 409, {"message": "the UID in the precondition does not match"}
        if self.budget is not None and self.budget < 1:
            return 429, {"message": "Cannot evict pod as it would violate the pod's disruption budget."}
        self.evicted.append(body)
        app = meta["labels"]["app"]
        del self.pods[name]
        self.add(app=app, created="2023-11-14T22:20:00Z")
        return 201, {"kind": "Status", "status": "Success"}
