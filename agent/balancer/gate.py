"""The readiness gate: a condition of an engine's pod that is false while the engine is isolated."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from agent.balancer.config import NAME
from agent.balancer.coordinator import TIMEOUT_SECONDS, CoordinatorError
from agent.balancer.http_client import JsonClient, refused
from agent.balancer.state import Weight
from agent.plain import plain

_NAME = re.compile(NAME)  # it becomes part of a URL, and an engine says it
CONDITION = "kvtide.io/not-isolated"
AGAIN_SECONDS = 30.0  # what was told is told anew: a pod of the same name may be another


class ReadinessGate:
    """Patches pods in ``namespace``. ``clock``: monotonic seconds; ``wall``: Unix time."""

    def __init__(
        self,
        client: JsonClient,
        namespace: str,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._clock, self._wall = client, clock, wall
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._told: dict[str, tuple[bool, float]] = {}

    async def tell(self, weights: Mapping[str, Weight]) -> None:
        """Tell each pod whether its engine serves, by the pod's name; raises :class:`CoordinatorError` at the end for
        the last that could not be told.
        """
        self._told = {pod: told for pod, told in self._told.items() if pod in weights}
        problem = ""
        for pod, weight in weights.items():
            before = self._told.get(pod)
            if not _NAME.fullmatch(pod):
                problem = f"{plain(pod, 60)} is no name of a pod"
                continue
            if before is not None and before[0] == weight.serves and self._clock() - before[1] < AGAIN_SECONDS:
                continue
            try:
                await asyncio.wait_for(self._patch(pod, weight), TIMEOUT_SECONDS)
            except (CoordinatorError, TimeoutError) as error:
                problem = str(error) or "no answer in time"
                continue
            self._told[pod] = (weight.serves, self._clock())
        if problem:
            raise CoordinatorError(f"readiness gate: {problem}")

    async def close(self) -> None:
        """End the connections."""
        await self._client.close()

    async def _patch(self, pod: str, weight: Weight) -> None:
        condition = {
            "type": CONDITION,
            "status": "True" if weight.serves else "False",
            "reason": weight.step.capitalize(),
            "message": weight.why,
            "lastTransitionTime": datetime.fromtimestamp(weight.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        # Conditions are merged by their type: those of others stay.
        answer = await self._client.call(
            "PATCH",
            f"{self._pods}/{pod}/status",
            {"status": {"conditions": [condition]}},
            "application/strategic-merge-patch+json",
        )
        if not 200 <= answer.status < 300:
            raise refused(answer, f"pod {pod}")
