"""A coordinator of somebody else's, asked by POST.

``{"act": "alive", "node": ..., "engines": [...], "seconds": 60}``, ``{"act": "grant" or "release", "node": ...,
"engine": ..., "seconds": 60, "share": 0.3}``. Only ``{"granted": true}`` grants; ``why`` may say why not, ``fleet`` and
``ejected`` may be whole numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.balancer.coordinator import LEASE_SECONDS, Grant
from agent.balancer.http_client import JsonClient, refused
from agent.plain import plain


class WebhookCoordinator:
    """Asks ``client``'s URL."""

    name = "webhook"

    def __init__(self, client: JsonClient, node: str, share: float) -> None:
        self._client, self._node, self._share = client, node, share

    async def alive(self, engines: Sequence[str]) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        await self._post(act="alive", engines=list(engines))

    async def grant(self, engine: str) -> Grant:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        body = await self._post(act="grant", engine=engine, share=self._share)
        granted, why = body.get("granted") is True, body.get("why")
        said = plain(why, 200) if isinstance(why, str) else "the webhook does not grant it"
        fleet, ejected = (_whole(body.get(name)) for name in ("fleet", "ejected"))
        return Grant(granted=granted, why="" if granted else said, fleet=fleet, ejected=ejected)

    async def release(self, engine: str) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        await self._post(act="release", engine=engine)

    async def close(self) -> None:
        """See :class:`agent.balancer.coordinator.Coordinator`."""
        await self._client.close()

    async def _post(self, **body: Any) -> dict[str, Any]:
        answer = await self._client.call("POST", body={"node": self._node, "seconds": LEASE_SECONDS, **body})
        if not 200 <= answer.status < 300:
            raise refused(answer, "webhook")
        return answer.body


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
