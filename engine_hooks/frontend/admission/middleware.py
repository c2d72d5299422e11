"""The ASGI middleware that lets requests in or not. While no rules are in force it touches nothing and reads no body;
it notes that a request is there, if rules may come.

It fails open: whatever raises in here, the request is let in, and after five times the gate stays open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

from engine_hooks.frontend.admission.answers import CLEANED, DECISION, messages
from engine_hooks.frontend.admission.ask import OTHER_WORK, ROUTES
from engine_hooks.frontend.admission.body import Body
from engine_hooks.frontend.admission.gate import Gate, Passage
from engine_hooks.frontend.admission.rules import Rules
from engine_hooks.frontend.admission.sending_on import send_on
from engine_hooks.frontend.admission.upstreams import Upstream
from engine_hooks.frontend.identify import Claims
from engine_hooks.frontend.middleware import CLAIMS, App, Receive, Scope, Send
from engine_hooks.guard import Guard

HOOK = "admission"
_JUDGED_KEY = "kvtide.judged"  # applications may lie in one another

SendOn = Callable[[Upstream, Passage, Send], Awaitable[bool]]


class AdmissionMiddleware:
    """Asks ``gate`` about each request that makes the engine work. It stands inside the one that sets
    :data:`CLAIMS`, which stands inside vLLM's authentication.
    """

    def __init__(self, app: App, *, gate: Gate, guard: Guard, send_on: SendOn = send_on) -> None:
        self._app = app
        self._gate = gate
        self._guard = guard
        self._send_on = send_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or connection."""
        gate, rules = self._gate, self._gate.rules
        idle = rules is None and not gate.notes
        if idle or scope["type"] != "http" or scope["method"] != "POST" or HOOK in self._guard.off:
            await self._app(scope, receive, send)
            return
        path = route_of(scope)
        if (path not in ROUTES and path not in OTHER_WORK) or _JUDGED_KEY in scope:
            await self._app(scope, receive, send)
            return
        scope[_JUDGED_KEY] = True
        if rules is None:
            await self._noted(scope, path, receive, send)
            return
        await self._judge(scope, path, rules, receive, send)

    async def _noted(self, scope: Scope, path: str, receive: Receive, send: Send) -> None:
        stack = contextlib.ExitStack()
        self._guard.run(HOOK, lambda: stack.enter_context(self._gate.noting(path)))
        try:
            await self._app(scope, receive, send)
        finally:
            try:  # not by the guard, as below
                stack.close()
            except Exception as error:
                self._guard.note(HOOK, error)

    async def _judge(self, scope: Scope, path: str, rules: Rules, receive: Receive, send: Send) -> None:
        body = Body(receive)
        passage = Passage(scope, path, rules, body, CLAIMS.get() or Claims())
        try:
            await self._guarded(self._gate.look, passage)
            if passage.upstream is not None and passage.refusal is None:
                if await self._sent_on(passage, passage.upstream, send):
                    return
                passage.notes.append("upstream_failed")
            if passage.refusal is None:
                await self._guarded(self._gate.take, passage)
            if passage.refusal is not None:
                answer = self._guard.run(HOOK, messages, passage.refusal, path)
                if answer is not None:
                    for message in answer:
                        await send(message)
                    return
            await self._app(scope, body, _telling(passage, send, self._guard))
        finally:
            try:  # not by the guard: what was taken is given back even when the hook is off
                self._gate.leave(passage)
            except Exception as error:
                self._guard.note(HOOK, error)

    async def _guarded(self, step: Callable[[Passage], Awaitable[None]], passage: Passage) -> None:
        try:
            await step(passage)
        except Exception as error:
            passage.refusal = passage.upstream = None
            self._guard.note(HOOK, error)
            if HOOK in self._guard.off:
                self._gate.why_not = f"it has raised too often: {self._guard.off[HOOK]}"

    async def _sent_on(self, passage: Passage, upstream: Upstream, send: Send) -> bool:
        begun = False

        async def sending(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            return await self._send_on(upstream, passage, _telling(passage, sending, self._guard))
        except Exception as error:
            self._guard.note(HOOK, error)
            return begun


def route_of(scope: Scope) -> str:
    """Return the path of a request below the application's own root."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _telling(passage: Passage, send: Send, guard: Guard) -> Send:
    """Say in the answer's headers what was decided; everything else passes as it is."""

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            message = guard.run(HOOK, _told, passage, message) or message
        await send(message)

    return sending


def _told(passage: Passage, message: Any) -> Any:
    """Return the start of an answer with our headers."""
    headers = list(message.get("headers") or ())
    if not any(name == DECISION for name, _ in headers):
        headers.append((DECISION, "; ".join(("admitted", *passage.notes)).encode()))
    if passage.removed:
        told = ", ".join(f"{kind}={count}" for kind, count in sorted(passage.removed.items()))
        headers.append((CLEANED, told.encode()))
    return {**message, "headers": headers}
