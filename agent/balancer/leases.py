"""Leases of Kubernetes' API: read, and changed over the version that was read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from agent.balancer.coordinator import CoordinatorError
from agent.balancer.http_client import Answer, JsonClient, refused

ATTEMPTS = 5  # over versions that others wrote meanwhile
SPREAD_SECONDS = 0.1
CONFLICT, NOT_FOUND = 409, 404

Lease = dict[str, Any]


class Leases:
    """Those in ``namespace``. ``skew``: how far the API server's clock is ahead of ours, seconds. All of it raises
    :class:`CoordinatorError`.
    """

    def __init__(self, client: JsonClient, namespace: str) -> None:
        self._client = client
        self._path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self.skew = 0.0

    async def read(self, name: str, *, cached: bool = False) -> Lease | None:
        """Return a Lease, None where there is none of this name. ``cached``: it may be a moment old."""
        found = await self.call("GET", f"{self._path}/{name}{'?resourceVersion=0' if cached else ''}", NOT_FOUND)
        return None if found.status == NOT_FOUND else found.body

    async def labelled(self, label: str, value: str) -> list[Lease]:
        """Return those with this label."""
        answer = await self.call("GET", f"{self._path}?labelSelector={label}%3D{value}")
        items = answer.body.get("items")
        return [each for each in items or () if isinstance(each, dict)]

    async def change(self, name: str, act: Callable[[Lease], bool]) -> None:
        """Let ``act`` change a Lease (or say that it has not), again where another has written it meanwhile; it is made
        where there is none.
        """
        for attempt in range(ATTEMPTS):
            await asyncio.sleep(attempt * SPREAD_SECONDS * random.random())  # noqa: S311 - no secret, it only spreads
            found = await self.read(name)
            lease = _new(name) if found is None else found
            if not act(lease):
                return
            # What was read goes back with its resourceVersion.
            method, path = ("POST", self._path) if found is None else ("PUT", f"{self._path}/{name}")
            written = await self.call(method, path, CONFLICT, body=lease)
            if written.status != CONFLICT:
                return
        raise CoordinatorError(f"Lease {name}: others wrote it {ATTEMPTS} times meanwhile")

    async def call(self, method: str, path: str, *expected: int, body: Any = None) -> Answer:
        """Return what is answered, where it is a success or ``expected``."""
        answer = await self._client.call(method, path, body)
        if not 200 <= answer.status < 300 and answer.status not in expected:
            raise refused(answer, f"{method} {path.partition('?')[0].rpartition('/')[2]}")
        self.skew = answer.skew_seconds
        return answer

    async def close(self) -> None:
        """End connections."""
        await self._client.close()


def at(value: Any, *keys: str) -> Any:
    """Return what is there under ``keys``, one in the other; None where it is not."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def part(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return the table that is there under ``keys``, one in the other; what is missing is made."""
    for key in keys:
        inner = value.get(key)
        value[key] = value = inner if isinstance(inner, dict) else {}
    return value


def _new(name: str) -> Lease:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
