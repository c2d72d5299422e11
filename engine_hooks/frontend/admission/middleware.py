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
        gate.why_off = lambda: guard.off.get(HOOK, "")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or connection. All that is ours is called from here, behind a net of its own."""
        gate, guard, rules = self._gate, self._guard, self._gate.rules
        idle = rules is None and not gate.notes
        if idle or scope["type"] != "http" or scope["method"] != "POST" or HOOK in guard.off:
            await self._app(scope, receive, send)
            return
        path = route_of(scope)
        if (path not in ROUTES and path not in OTHER_WORK) or _JUDGED_KEY in scope:
            await self._app(scope, receive, send)
            return
        scope[_JUDGED_KEY] = True
        if rules is None:
            stack = contextlib.ExitStack()
            guard.run(HOOK, lambda: stack.enter_context(gate.noting(path)))
            try:
                await self._app(scope, receive, send)
            finally:
                guard.give_back(HOOK, stack.close)
            return
        body = Body(receive)
        passage = Passage(scope, path, rules, body, CLAIMS.get() or Claims())
        answer = _Answer(passage, send, guard)
        try:
            try:
                answered = await self._answered(passage, answer)
            except Exception as error:
                if answer.failed:  # the client's connection, and no fault of ours
                    raise
                answered = answer.begun
                guard.note(HOOK, error)
            if not answered:
                await self._app(scope, body, answer)
        finally:
            guard.give_back(HOOK, gate.leave, passage)

    async def _answered(self, passage: Passage, answer: _Answer) -> bool:
        """Judge a request; return whether the client has its answer: not from the application behind us."""
        await self._gate.look(passage)
        if passage.upstream is not None and passage.refusal is None:
            try:
                if await self._send_on(passage.upstream, passage, answer):
                    return True
            except Exception as error:
                if answer.begun:
                    raise
                self._guard.note(HOOK, error)
            passage.notes.append("upstream_failed")
        if passage.refusal is None:
            await self._gate.take(passage)
        if passage.refusal is None:
            return False
        for message in messages(passage.refusal, passage.path):
            await answer(message)
        return True


class _Answer:
    """The way back to the client; it adds what was decided to the headers. ``begun``: whether something was sent;
    ``failed``: whether that raised.
    """

    def __init__(self, passage: Passage, send: Send, guard: Guard) -> None:
        self._passage = passage
        self._send = send
        self._guard = guard
        self.begun = self.failed = False

    async def __call__(self, message: Any) -> None:
        """Send one message: ours, the application's, or another server's."""
        if message["type"] == "http.response.start" and self._passage.refusal is None:
            message = self._guard.run(HOOK, _told, self._passage, message) or message
        self.begun = True
        try:
            await self._send(message)
        except BaseException:
            self.failed = True
            raise


def route_of(scope: Scope) -> str:
    """Return the path of a request below the application's own root."""
    path, root = str(scope["path"]), str(scope.get("root_path") or "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def _told(passage: Passage, message: Any) -> Any:
    """Return the start of an answer with our headers."""
    headers = list(message.get("headers") or ())
    if not any(name == DECISION for name, _ in headers):
        headers.append((DECISION, "; ".join(("admitted", *passage.notes)).encode()))
    if passage.removed:
        told = ", ".join(f"{kind}={count}" for kind, count in sorted(passage.removed.items()))
        headers.append((CLEANED, told.encode()))
    return {**message, "headers": headers}
