"""Where we enter an API server: at the moment when its FastAPI application puts its middleware together.

vLLM loads plugins in every process; only API servers ever come to that moment, and by then all that is wrapped here
has been imported. What this vLLM lacks is left alone: tenants then are what the scheduler itself can tell.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from engine_hooks.core import marks
from engine_hooks.frontend.admission.middleware import AdmissionMiddleware
from engine_hooks.frontend.admission.wiring import gate_of_process, guard_of_process
from engine_hooks.frontend.identify import Claims
from engine_hooks.frontend.middleware import CLAIMS, HOOK, PEER_KEY, Scope, TenantMiddleware
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard
from engine_hooks.names import NO_TENANT, printable
from engine_hooks.settings import Settings
from engine_hooks.wrapping import wrap

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

HYGIENE = "hygiene"
EARLIER = "earlier"
_AUTHENTICATION = "AuthenticationMiddleware"
_PARSED = ("to_sampling_params", "to_beam_search_params")  # what turns a parsed body into parameters


def install(settings: Settings) -> None:
    """Have requests marked by every API server that comes up in this process. Cheap and quiet in all others."""
    marks.share_token()
    marks.use(settings.tenants)
    fastapi = sys.modules.get("fastapi")  # a process that serves HTTP has it by the time plugins are loaded
    if fastapi is not None:
        guard = guard_of_process()
        wrap(fastapi.FastAPI, "build_middleware_stack", lambda original: _entering(original, settings.tenants, guard))


def _entering(original: Callable[..., Any], settings: TenantSettings, guard: Guard) -> Callable[..., Any]:
    @functools.wraps(original)
    def build_middleware_stack(self: Any, *args: Any, **kwargs: Any) -> Any:
        guard.run(HOOK, _enter, self, settings, guard)
        return original(self, *args, **kwargs)

    return build_middleware_stack


def _enter(app: Any, settings: TenantSettings, guard: Guard) -> None:
    """Put our middleware behind all others of ``app``, and wrap what leads from it to the scheduler."""
    llm = sys.modules.get("vllm.v1.engine.async_llm")
    if llm is None:
        return
    wrap(llm.AsyncLLM, "add_request", lambda original: _marking(original, settings, guard))
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.entrypoints.") and "protocol" in name:
            _hand_users_in(module, guard)
    proxy = sys.modules.get("uvicorn.middleware.proxy_headers")
    if proxy is not None:
        wrap(proxy.ProxyHeadersMiddleware, "__call__", _keeping_the_peer)
    if not any(middleware.cls is TenantMiddleware for middleware in app.user_middleware):
        verify = _authentication(app)
        # The list goes from the outside to the inside.
        middleware = sys.modules["starlette.middleware"].Middleware
        app.user_middleware.append(middleware(TenantMiddleware, settings=settings, guard=guard, verify=verify))
        gate = gate_of_process(settings)
        app.user_middleware.append(middleware(AdmissionMiddleware, gate=gate, guard=guard))
        gate.why_not = ""


def _hand_users_in(module: Any, guard: Guard) -> None:
    for value in list(vars(module).values()):
        if isinstance(value, type) and "user" in getattr(value, "model_fields", ()):
            for name in _PARSED:
                if name in vars(value):
                    wrap(value, name, lambda original: _noting_the_user(original, guard))


def _noting_the_user(original: Callable[..., Any], guard: Guard) -> Callable[..., Any]:
    @functools.wraps(original)
    def parsed(self: Any, *args: Any, **kwargs: Any) -> Any:
        claims = CLAIMS.get()
        if claims is not None:
            guard.run(HOOK, claims.note_user, self.user)
        return original(self, *args, **kwargs)

    return parsed


def _keeping_the_peer(original: Callable[..., Any]) -> Callable[..., Any]:
    """uvicorn replaces the peer's address by a forwarded one, which anybody may write: who is trusted is the peer."""

    @functools.wraps(original)
    async def call(self: Any, scope: Scope, *args: Any, **kwargs: Any) -> Any:
        scope[PEER_KEY] = scope.get("client")
        return await original(self, scope, *args, **kwargs)

    return call


def _authentication(app: Any) -> Callable[[Scope], bool] | None:
    """Return what tells whether a request passes this application's own authentication; None where it has none."""
    for middleware in app.user_middleware:
        if middleware.cls.__name__ == _AUTHENTICATION:
            if not hasattr(middleware.cls, "verify_token"):
                logger.warning("kvtide: this vLLM's authentication can't be asked; only listed proxies are believed")
                return None
            own = middleware.cls(None, *middleware.args, **middleware.kwargs)
            headers = sys.modules["starlette.datastructures"].Headers
            return lambda scope: bool(own.verify_token(headers(scope=scope)))
    return None


def _marking(
    original: Callable[..., Awaitable[Any]], settings: TenantSettings, guard: Guard
) -> Callable[..., Awaitable[Any]]:
    """Add the marks to a request's parameters, after the client's own were taken out; on a copy of them."""
    places = {name: place for place, name in enumerate(inspect.signature(original).parameters)}
    gate = gate_of_process(settings)

    def mark(args: list[Any], kwargs: dict[str, Any]) -> None:
        def argument(name: str) -> Any:
            place = places.get(name, len(args))
            return kwargs.get(name) if place >= len(args) else args[place]

        prompt, lora = argument("prompt"), argument("lora_request")
        salt = prompt.get("cache_salt") if isinstance(prompt, dict) else getattr(prompt, "cache_salt", None)
        claims = CLAIMS.get() or Claims()
        tenant = settings.of_request(salt, getattr(lora, "lora_name", None), claims.front)
        carried = marks.front_marks(tenant, claims.session)
        name = printable(tenant) or NO_TENANT
        guard.run(HYGIENE, gate.see, name, prompt, argument("prompt_text"))
        guard.run(EARLIER, gate.needs, name, prompt, argument("params"))
        if getattr(prompt, "sampling_params", None) is not None:  # a front end that has made its request already
            prompt.sampling_params = with_marks(prompt.sampling_params, carried)
            return
        params = argument("params")
        if hasattr(params, "extra_args"):
            if "params" in kwargs:
                kwargs["params"] = with_marks(params, carried)
            else:
                args[places["params"]] = with_marks(params, carried)

    @functools.wraps(original)
    def add_request(*args: Any, **kwargs: Any) -> Awaitable[Any]:
        given = list(args)
        guard.run(HOOK, mark, given, kwargs)
        return original(*given, **kwargs)

    return add_request


def with_marks(params: Any, carried: dict[str, str]) -> Any:
    """Return a copy of vLLM's ``params`` that carries the marks, and nothing that a client put in their place."""
    marked = copy.copy(params)
    marked.extra_args = {**(params.extra_args or {}), marks.MARKS_KEY: carried}
    return marked
