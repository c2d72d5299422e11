"""What tests of admission share: a gate with a small pool, rules by order, and ASGI in one line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.lever import Admission
from engine_hooks.frontend.admission.middleware import AdmissionMiddleware
from engine_hooks.frontend.admission.size import Pool
from engine_hooks.frontend.admission.table import Table
from engine_hooks.frontend.admission.upstreams import Upstreams
from engine_hooks.frontend.identify import Claims
from engine_hooks.frontend.middleware import CLAIMS
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard
from engine_hooks.levers.base import Done
from tests.unit.support import Clock

POOL = Pool(block_tokens=16, blocks=100, ranks=1, model_tokens=2048)
DECISION = "x-kvtide-decision"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


class App:
    """Answers with what it read, in two pieces; ``hold`` makes it wait in between. ``engine`` gets what it has read."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.received = 0
        self.scopes: list[Any] = []
        self.error: BaseException | None = None
        self.hold: asyncio.Event | None = None
        self.engine: Callable[[bytes], None] | None = None
        self.reads = True

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        body, more = b"", self.reads
        while more:
            message = await receive()
            self.received += 1
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        if self.engine is not None:
            self.engine(body)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        await send({"type": "http.response.body", "body": b"two", "more_body": False})


class Answer:
    """What the client saw. ``polled``: how often the server was asked for a message."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.polled = 0

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(b"".join(m["body"] for m in self.messages[1:]))["error"]
        return found


class Bed:
    """One API server: an app behind the middleware. ``file``: of a table that others share."""

    def __init__(self, upstreams: Upstreams | None = None, env: dict[str, str] | None = None, **kept: Any) -> None:
        self.clock = Clock()
        settings = TenantSettings.from_environment({"KVTIDE_TENANT_FROM": "header:x-tenant,user,lora", **(env or {})})
        self.gate = Gate(settings, upstreams, self.clock)
        self.gate.pool = POOL
        self.gate.served = frozenset({"tiny"})
        self.gate.why_not = ""
        self.guard = Guard()
        self.app = App()
        self.lever = Admission(self.gate, POOL, kept.pop("open_table", lambda: Table(None, self.clock)))
        self.middleware = AdmissionMiddleware(self.app, gate=self.gate, guard=self.guard, **kept)

    def order(self, **arguments: Any) -> Done:
        return self.lever.apply(arguments)

    async def post(
        self,
        body: dict[str, Any] | bytes,
        path: str = COMPLETIONS,
        tenant: str = "acme",
        *,
        method: str = "POST",
        pieces: int = 1,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        gone_after: int | None = None,
        seen: Answer | None = None,
        trusted: bool = True,
    ) -> Answer:
        """Send one request; the body comes in ``pieces``, the client goes away after so many of them."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        size = max(1, -(-len(sent) // pieces))
        parts = [sent[at : at + size] for at in range(0, len(sent), size)] or [b""]
        events: list[Any] = [
            {"type": "http.request", "body": part, "more_body": number + 1 < len(parts)}
            for number, part in enumerate(parts)
        ]
        if gone_after is not None:
            events = [*events[:gone_after], {"type": "http.disconnect"}]
        answer = seen or Answer()

        async def receive() -> Any:
            answer.polled += 1
            if events:
                return events.pop(0)
            await asyncio.Event().wait()
            return None

        async def send(message: Any) -> None:
            answer.messages.append(message)

        own = [(b"content-type", b"application/json"), (b"content-length", str(len(sent)).encode())]
        scope = {"type": "http", "method": method, "path": path, "headers": [*own, *headers]}
        token = CLAIMS.set(Claims(trusted=trusted, front={"header:x-tenant": tenant} if tenant else {}))
        try:
            await self.middleware(scope, receive, send)
        finally:
            CLAIMS.reset(token)
        return answer

    def held(self, tenant: str = "acme") -> tuple[int, int, int]:
        assert self.gate.table is not None
        use = self.gate.table.use_of(tenant)
        return use.blocks, use.requests, use.long


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run ``work`` to its end."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work(), 30.0)

    return asyncio.run(bounded())


def completion(tokens: int, output: int | None = 16, **other: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "tiny", "prompt": list(range(tokens)), **other}
    return body if output is None else {**body, "max_tokens": output}


async def until(what: Any) -> None:
    """Let others run until ``what`` holds; the bound of :func:`run` ends it."""
    while not what():  # noqa: ASYNC110 - it is looked at from outside
        await asyncio.sleep(0.001)
