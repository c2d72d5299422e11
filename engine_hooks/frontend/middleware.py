"""An ASGI middleware that notes whose a request is, for as long as the request lasts.

It runs inside vLLM's authentication, reads headers only and touches neither the body nor the answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any

from engine_hooks.frontend.identify import Claims, claims_of
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HOOK = "front_end"
# Where the peer of the connection is kept for us, before a server puts a forwarded address in its place.
PEER_KEY = "kvtide.peer"
# Applications may lie in one another: the outermost, which has the authentication, is the one that knows.
_NOTED_KEY = "kvtide.noted"
CLAIMS: ContextVar[Claims | None] = ContextVar("kvtide_claims", default=None)


class TenantMiddleware:
    """Sets :data:`CLAIMS` around each request. ``verify``: whether the engine's own authentication lets this one in."""

    def __init__(
        self, app: App, *, settings: TenantSettings, guard: Guard, verify: Callable[[Scope], bool] | None
    ) -> None:
        self._app = app
        self._settings = settings
        self._guard = guard
        self._verify = verify

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or connection."""
        if scope["type"] not in ("http", "websocket") or _NOTED_KEY in scope:
            await self._app(scope, receive, send)
            return
        scope[_NOTED_KEY] = True
        token = CLAIMS.set(self._guard.run(HOOK, self._claims, scope))
        try:
            await self._app(scope, receive, send)
        finally:
            CLAIMS.reset(token)

    def _claims(self, scope: Scope) -> Claims:
        peer = scope.get(PEER_KEY, scope.get("client"))
        authenticated = self._verify is not None and self._verify(scope)
        return claims_of(self._settings, scope["headers"], peer[0] if peer else None, authenticated=authenticated)
