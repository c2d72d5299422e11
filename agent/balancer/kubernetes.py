"""A coordinator made of Leases of Kubernetes' API.

Each node renews a Lease of its own, labelled with the fleet's name, which says how many engines it has: nobody else
writes it, so that any number of nodes never conflict. Grants are in one shared Lease, in an annotation; it is written
only where somebody goes below 50 % or comes back, and only over the version that was read. Times are the API server's:
clocks of nodes differ.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from agent.balancer.coordinator import LEASE_SECONDS, CoordinatorError, Grant, verdict
from agent.balancer.http_client import JsonClient
from agent.balancer.leases import Leases, at, part

GROUP = "kvtide.io"
GRANTS = f"{GROUP}/ejections"
ENGINES = f"{GROUP}/engines"
FLEET = f"{GROUP}/fleet"
UNSEEN_SECONDS = 30.0  # what an ejection does to a pod is in the budget's status by then


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
        self._node, self._share, self._wall = node, share, wall
        self._budget, self._gated = budget, gated
        self._leases = Leases(client, namespace)
        self._budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        self._lease = lease
        self._own = f"{lease}-{hashlib.sha256(node.encode()).hexdigest()[:12]}"

    async def alive(self, engines: Sequence[str]) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""

        def enter(lease: dict[str, Any]) -> bool:
            part(lease, "metadata", "labels")[FLEET] = self._lease
            part(lease, "metadata", "annotations")[ENGINES] = str(len(engines))
            self._sign(lease)
            return True

        await self._leases.change(self._own, enter)

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

        await self._leases.change(self._lease, ask)
        return answers[0]

    async def release(self, engine: str) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""

        def give_back(lease: dict[str, Any]) -> bool:
            grants = self._grants(lease)
            if grants.pop(f"{self._node}/{engine}", None) is None:
                return False
            self._write(lease, grants)
            return True

        await self._leases.change(self._lease, give_back)

    async def close(self) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        await self._leases.close()

    # -- what is read --------------------------------------------------------------------------------------

    async def _fleet(self) -> int:
        """Return how many engines there are on nodes whose Lease has not ended."""
        found = await self._leases.labelled(FLEET, self._lease)
        now = self._now()
        return sum(_engines(each, now) for each in found)

    async def _allowed(self) -> int | None:
        if self._budget is None:
            return None
        answer = await self._leases.call("GET", f"{self._budgets}/{self._budget}")
        allowed = at(answer.body, "status", "disruptionsAllowed")
        return allowed if isinstance(allowed, int) else 0

    def _grants(self, lease: dict[str, Any]) -> dict[str, Held]:
        text = at(lease, "metadata", "annotations", GRANTS)
        try:
            grants = msgspec.json.decode(text, type=dict[str, Held]) if isinstance(text, str) else {}
        except (msgspec.MsgspecError, ValueError) as error:
            raise CoordinatorError(f"Lease {self._lease}: {GRANTS}: {error}") from None
        return {key: held for key, held in grants.items() if held.until > self._now()}

    def _now(self) -> float:
        return self._wall() + self._leases.skew

    # -- what is written -----------------------------------------------------------------------------------

    def _write(self, lease: dict[str, Any], grants: dict[str, Held]) -> None:
        part(lease, "metadata", "annotations")[GRANTS] = msgspec.json.encode(grants).decode()
        self._sign(lease)

    def _sign(self, lease: dict[str, Any]) -> None:
        spec = part(lease, "spec")
        spec["holderIdentity"], spec["leaseDurationSeconds"] = self._node, int(LEASE_SECONDS)
        spec["renewTime"] = datetime.fromtimestamp(self._now(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _engines(lease: dict[str, Any], now: float) -> int:
    renewed, count = at(lease, "spec", "renewTime"), at(lease, "metadata", "annotations", ENGINES)
    try:
        until = datetime.fromisoformat(renewed.replace("Z", "+00:00")).timestamp() + LEASE_SECONDS
    except (AttributeError, ValueError):
        return 0
    return int(count) if now < until and isinstance(count, str) and re.fullmatch(r"[0-9]{1,3}", count) else 0
