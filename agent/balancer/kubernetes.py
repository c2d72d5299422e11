"""A coordinator made of Leases of Kubernetes' API.

Each node renews a Lease of its own, labelled with the fleet's name, which says how many engines it has: nobody else
writes it, so that any number of nodes never conflict. Grants are in one shared Lease, in an annotation; it is written
only where somebody goes below 50 % or comes back, and only over the version that was read. Times are the API server's:
clocks of nodes differ.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from agent.balancer.coordinator import LEASE_SECONDS, CoordinatorError, Grant, verdict
from agent.balancer.http_client import Answer, JsonClient, refused

GROUP = "kvtide.io"
GRANTS = f"{GROUP}/ejections"
ENGINES = f"{GROUP}/engines"
FLEET = f"{GROUP}/fleet"
ATTEMPTS = 5  # over versions that others wrote meanwhile
SPREAD_SECONDS = 0.1
UNSEEN_SECONDS = 30.0  # what an ejection does to a pod is in the budget's status by then
CONFLICT, NOT_FOUND = 409, 404


class Held(msgspec.Struct):
    """A grant: Unix times, by the API server's clock, since when and until when."""

    since: float
    until: float


class KubernetesCoordinator:
    """Leases in ``namespace``: ``lease`` for the fleet, ``lease-HASH`` for this node. ``budget``: a PodDisruptionBudget
    that must allow one disruption more; ``gated``: an ejection makes the pod unready, so that the budget sees it.
    """

    name = "kubernetes"

    def __init__(
        self,
        client: JsonClient,
        namespace: str,
        lease: str,
        node: str,
        share: float,
        *,
        budget: str | None = None,
        gated: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._node, self._share, self._wall = client, node, share, wall
        self._budget, self._gated = budget, gated
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self._lease = lease
        self._own = f"{lease}-{hashlib.sha256(node.encode()).hexdigest()[:12]}"
        self._skew = 0.0

    async def alive(self, engines: Sequence[str]) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""

        def enter(lease: dict[str, Any]) -> bool:
            _part(lease, "metadata", "labels")[FLEET] = self._lease
            _part(lease, "metadata", "annotations")[ENGINES] = str(len(engines))
            self._sign(lease)
            return True

        await self._change(self._own, enter)

    async def grant(self, engine: str) -> Grant:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        key, answers = f"{self._node}/{engine}", [Grant(granted=False)]
        fleet, allowed = await self._fleet(), await self._allowed()

        def ask(lease: dict[str, Any]) -> bool:
            now, grants = self._now(), self._grants(lease)
            mine = grants.pop(key, None)
            found = verdict(fleet, len(grants), self._share)
            unseen = [each for each in grants.values() if not self._gated or now - each.since < UNSEEN_SECONDS]
            # One that has a grant is a disruption already; the budget is for those that are to come.
            if found.granted and mine is None and allowed is not None and allowed <= len(unseen):
                why = f"the disruption budget {self._budget} allows {allowed} more"
                found = Grant(granted=False, why=why, fleet=fleet, ejected=len(grants))
            answers[0] = found
            if found.granted:
                grants[key] = Held(since=mine.since if mine else now, until=now + LEASE_SECONDS)
            elif mine is None:
                return False
            self._write(lease, grants)
            return True

        await self._change(self._lease, ask)
        return answers[0]

    async def release(self, engine: str) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""

        def give_back(lease: dict[str, Any]) -> bool:
            grants = self._grants(lease)
            if grants.pop(f"{self._node}/{engine}", None) is None:
                return False
            self._write(lease, grants)
            return True

        await self._change(self._lease, give_back)

    async def close(self) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        await self._client.close()

    # -- what is read --------------------------------------------------------------------------------------

    async def _fleet(self) -> int:
        """Return how many engines there are on nodes whose Lease has not ended."""
        answer = await self._call("GET", f"{self._leases}?labelSelector={FLEET}%3D{self._lease}")
        items, now = answer.body.get("items"), self._now()
        return sum(_engines(item, now) for item in items or () if isinstance(item, dict))

    async def _allowed(self) -> int | None:
        if self._budget is None:
            return None
        answer = await self._call("GET", f"{self._budgets}/{self._budget}")
        allowed = _at(answer.body, "status", "disruptionsAllowed")
        return allowed if isinstance(allowed, int) else 0

    def _grants(self, lease: dict[str, Any]) -> dict[str, Held]:
        text = _at(lease, "metadata", "annotations", GRANTS)
        try:
            grants = msgspec.json.decode(text, type=dict[str, Held]) if isinstance(text, str) else {}
        except (msgspec.MsgspecError, ValueError) as error:
            raise CoordinatorError(f"Lease {self._lease}: {GRANTS}: {error}") from None
        return {key: held for key, held in grants.items() if held.until > self._now()}

    def _now(self) -> float:
        return self._wall() + self._skew

    # -- what is written -----------------------------------------------------------------------------------

    def _write(self, lease: dict[str, Any], grants: dict[str, Held]) -> None:
        _part(lease, "metadata", "annotations")[GRANTS] = msgspec.json.encode(grants).decode()
        self._sign(lease)

    def _sign(self, lease: dict[str, Any]) -> None:
        spec = _part(lease, "spec")
        spec["holderIdentity"], spec["leaseDurationSeconds"] = self._node, int(LEASE_SECONDS)
        spec["renewTime"] = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    async def _change(self, name: str, act: Callable[[dict[str, Any]], bool]) -> None:
        """Let ``act`` change a Lease (or say that it has not), again where another has written it meanwhile; it is made
        where there is none.
        """
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(attempt * SPREAD_SECONDS * random.random())  # noqa: S311 - no secret, it only spreads
            found = await self._call("GET", f"{self._leases}/{name}", NOT_FOUND)
            new = found.status == NOT_FOUND
            lease = _new(name) if new else found.body
            if not act(lease):
                return
            # What was read goes back with its resourceVersion.
            method, path = ("POST", self._leases) if new else ("PUT", f"{self._leases}/{name}")
            written = await self._call(method, path, CONFLICT, body=lease)
            if written.status != CONFLICT:
                return
        raise CoordinatorError(f"Lease {name}: others wrote it {ATTEMPTS} times meanwhile")

    async def _call(self, method: str, path: str, *expected: int, body: Any = None) -> Answer:
        answer = await self._client.call(method, path, body)
        if not 200 <= answer.status < 300 and answer.status not in expected:
            raise refused(answer, f"{method} {path.partition('?')[0].rpartition('/')[2]}")
        self._skew = answer.skew_seconds
        return answer


def _new(name: str) -> dict[str, Any]:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _part(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    for key in keys:
        inner = value.get(key)
        value[key] = value = inner if isinstance(inner, dict) else {}
    return value


def _engines(lease: dict[str, Any], now: float) -> int:
    renewed, count = _at(lease, "spec", "renewTime"), _at(lease, "metadata", "annotations", ENGINES)
    try:
        until = datetime.fromisoformat(renewed.replace("Z", "+00:00")).timestamp() + LEASE_SECONDS
    except (AttributeError, ValueError):
        return 0
    return int(count) if now < until and isinstance(count, str) and re.fullmatch(r"[0-9]{1,3}", count) else 0
