"""The engine's pod, by Kubernetes' API: evicted, so that a PodDisruptionBudget is respected; its controller makes the
next one.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

from agent.balancer.config import NAME
from agent.balancer.coordinator import CoordinatorError
from agent.balancer.http_client import Answer, JsonClient, refused
from agent.plain import plain
from agent.subject import Value
from agent.supervisor.base import RefusedError, SupervisorError, Target

OK, NOT_FOUND, CONFLICT, TOO_MANY = 200, 404, 409, 429  # the last: a budget allows none more
_OF_ONE_POD = ("statefulset.kubernetes.io/", "apps.kubernetes.io/pod-index", "controller-revision-hash")
_NAME = re.compile(NAME)


class Meant(Value, frozen=True, kw_only=True):
    """A pod that is to be evicted. ``there``: the uids of its controller's pods before that."""

    uid: str
    controller: str
    selector: str
    there: frozenset[str] = frozenset()


class KubernetesSupervisor:
    """Pods in ``namespace``, found by the engine's host name (so not with ``hostNetwork``). One restart at a time."""

    name = "kubernetes"

    def __init__(self, client: JsonClient, namespace: str) -> None:
        self._client, self._namespace = client, namespace
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._meant: Meant | None = None

    async def probe(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        await self._found(target)

    async def restart(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        meant = await self._found(target)
        there = frozenset([_uid(pod) async for pod in self._of(meant)])
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": target.host, "namespace": self._namespace},
            # Where a successor has its name already, as in a StatefulSet, nothing is evicted.
            "deleteOptions": {"preconditions": {"uid": meant.uid}},
        }
        answer = await self._call("POST", f"{self._pods}/{target.host}/eviction", body)
        if answer.status in (TOO_MANY, NOT_FOUND, CONFLICT):
            raise RefusedError(str(refused(answer, f"pod {target.host}")))
        if not 200 <= answer.status < 300:
            raise SupervisorError(str(refused(answer, f"pod {target.host}")))
        self._meant = Meant(uid=meant.uid, controller=meant.controller, selector=meant.selector, there=there)

    async def succeeded(self, target: Target) -> bool:
        """Return whether a pod that was not there before is ready, on whichever node."""
        meant = self._meant
        if meant is None:
            return False
        return any([_uid(pod) not in meant.there and _is_ready(pod) async for pod in self._of(meant)])

    async def close(self) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        await self._client.close()

    async def _found(self, target: Target) -> Meant:
        if not _NAME.fullmatch(target.host):
            raise RefusedError(f"{plain(target.host, 60)} is no name of a pod")
        answer = await self._call("GET", f"{self._pods}/{target.host}")
        if answer.status != OK:
            raise RefusedError(str(refused(answer, f"pod {target.host}")))
        meta, controller = _part(answer.body, "metadata"), _controller(answer.body)
        if not controller:
            raise RefusedError(f"pod {target.host} has no controller: nobody would make another")
        if meta.get("deletionTimestamp"):
            raise RefusedError(f"pod {target.host} is being ended already")
        made = _unix(meta.get("creationTimestamp"))
        if made is not None and made - answer.skew_seconds > target.started_at + 1.0:  # it is told in whole seconds
            raise RefusedError(f"pod {target.host} is younger than the engine that is meant")
        labels = [f"{key}={value}" for key, value in _part(meta, "labels").items() if not key.startswith(_OF_ONE_POD)]
        return Meant(uid=_uid(answer.body), controller=controller, selector=quote(",".join(sorted(labels))))

    async def _of(self, meant: Meant) -> AsyncIterator[dict[str, Any]]:
        answer = await self._call("GET", f"{self._pods}?labelSelector={meant.selector}")
        if answer.status != OK:
            raise SupervisorError(str(refused(answer, "pods")))
        for pod in answer.body.get("items") or ():
            if isinstance(pod, dict) and _controller(pod) == meant.controller:
                yield pod

    async def _call(self, method: str, path: str, body: Any = None) -> Answer:
        try:
            return await self._client.call(method, path, body)
        except CoordinatorError as error:
            raise SupervisorError(str(error)) from None


def _part(value: dict[str, Any], key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}


def _rows(value: Any) -> Iterator[dict[str, Any]]:
    yield from (each for each in value or () if isinstance(each, dict))


def _uid(pod: dict[str, Any]) -> str:
    return str(_part(pod, "metadata").get("uid", ""))


def _controller(pod: dict[str, Any]) -> str:
    owners = _rows(_part(pod, "metadata").get("ownerReferences"))
    return next((str(each.get("uid", "")) for each in owners if each.get("controller") is True), "")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = _rows(_part(pod, "status").get("conditions"))
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _unix(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except (AttributeError, ValueError):
        return None
