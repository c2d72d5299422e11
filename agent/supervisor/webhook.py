"""A supervisor of somebody else's, asked by POST.

``{"act": "restart" or "probe", "engine": ..., "instance": ..., "host": ..., "pid": ...}``. Only ``{"accepted": true}``
accepts; ``why`` may say why not. ``{"act": "state", ...}`` may answer ``{"live": true}`` when a successor serves.
"""

from __future__ import annotations

from typing import Any

from agent.balancer.coordinator import CoordinatorError
from agent.balancer.http_client import JsonClient, refused
from agent.plain import plain
from agent.supervisor.base import RefusedError, SupervisorError, Target


class WebhookSupervisor:
    """Asks ``client``'s URL."""

    name = "webhook"

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    async def probe(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        await self._accepted("probe", target)

    async def restart(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        await self._accepted("restart", target)

    async def succeeded(self, target: Target) -> bool:
        """See :class:`agent.supervisor.base.Supervisor`."""
        return (await self._post("state", target)).get("live") is True

    async def close(self) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        await self._client.close()

    async def _accepted(self, act: str, target: Target) -> None:
        body = await self._post(act, target)
        if body.get("accepted") is not True:
            why = body.get("why")
            raise RefusedError(plain(why, 200) if isinstance(why, str) else f"the webhook does not accept {act}")

    async def _post(self, act: str, target: Target) -> dict[str, Any]:
        told = {"act": act, "engine": target.engine, "instance": target.instance, "host": target.host}
        try:
            answer = await self._client.call("POST", body={**told, "pid": target.pid})
        except CoordinatorError as error:
            raise SupervisorError(str(error)) from None
        if not 200 <= answer.status < 300:
            raise SupervisorError(str(refused(answer, "webhook")))
        return answer.body
