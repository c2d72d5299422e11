"""What can be ordered over the control socket. Beside that it serves all that the agent's HTTP side does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from agent.actions.persons import OrderError, Persons, UnknownError, WrongError
from agent.control.peer import PREFIX, name_of
from engine_hooks.levers.orders import Arguments

MOST_BYTES = 1 << 20

B = TypeVar("B")

Reload = Callable[[], Awaitable[str]]  # why the policy was not taken, empty where it was
Minutes = Annotated[float, msgspec.Meta(gt=0.0, le=525_600.0)]
Why = Annotated[str, msgspec.Meta(max_length=1000)]  # it is in the journal and in each answer of the state


class OrderBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``minutes``: for how long, None: until it is undone. ``attempt``: only ask what it would do."""

    lever: str
    engine: str
    arguments: Arguments = {}
    minutes: Minutes | None = None
    attempt: bool = False
    why: Why = ""


class VetoBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``*``: any lever, any engine."""

    lever: str
    engine: str = "*"
    minutes: Minutes = 60.0


class MarkBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``mark``: drain, maint, up or rollout; None frees the engine. ``minutes``: None: until it is freed."""

    engine: str
    mark: str | None = None
    minutes: Minutes | None = None
    why: Why = ""


class WhyBody(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Why somebody does it."""

    why: Why = ""


class BadBodyError(Exception):
    """What was sent is not what is needed; the text says why."""


def build_control(persons: Persons, reload: Reload, reading: ASGIApp) -> Starlette:
    """Return the app. ``reading`` serves everything else."""

    async def order(request: Request) -> Any:
        body = await _body(request, OrderBody)
        return await persons.order(
            body.lever,
            body.engine,
            body.arguments,
            by=_who(request),
            minutes=body.minutes,
            attempt=body.attempt,
            why=body.why,
        )

    async def undo(request: Request) -> Any:
        return await persons.undo(request.path_params["action"], by=_who(request))

    async def veto(request: Request) -> Any:
        body = await _body(request, VetoBody)
        return persons.veto(body.lever, body.engine, body.minutes, by=_who(request))

    async def mark(request: Request) -> Any:
        body = await _body(request, MarkBody)
        if body.mark is None:
            persons.unmark(body.engine)
            return {"engine": body.engine, "mark": None}
        made = persons.mark(body.engine, body.mark, by=_who(request), minutes=body.minutes, why=body.why)
        return msgspec.to_builtins(made) | {"engines": persons.engines()}  # of a typo who asks is to be warned

    async def close_breaker(request: Request) -> Any:
        return {"was_open": persons.close_breaker(by=_who(request))}

    async def off(request: Request) -> Any:
        body = await _body(request, WhyBody)
        persons.switch(on=False, by=_who(request), why=body.why)
        return {"on": False}

    async def on(request: Request) -> Any:
        persons.switch(on=True, by=_who(request))
        return {"on": True}

    async def reload_policy(_request: Request) -> Any:
        why = await reload()
        if why:
            raise OrderError(f"the policy stays as it was: {why}")
        return {"reloaded": True}

    posts: dict[str, Callable[[Request], Awaitable[Any]]] = {
        "/api/v1/orders": order,
        "/api/v1/actions/{action}/undo": undo,
        "/api/v1/veto": veto,
        "/api/v1/marks": mark,
        "/api/v1/breaker/close": close_breaker,
        "/api/v1/off": off,
        "/api/v1/on": on,
        "/-/reload": reload_policy,
    }
    routes = [Route(path, _answered(answer), methods=["POST"]) for path, answer in posts.items()]

    async def marks(_request: Request) -> Response:
        return _json(persons.marks())

    routes.append(Route("/api/v1/marks", marks, methods=["GET"]))
    return Starlette(routes=[*routes, Mount("/", app=reading)])


def _answered(answer: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        try:
            return _json(await answer(request))
        except (BadBodyError, WrongError) as error:
            return _json({"error": str(error)}, 400)
        except UnknownError as error:
            return _json({"error": str(error)}, 404)
        except OrderError as error:
            return _json({"error": str(error)}, 409)

    return respond


async def _body(request: Request, kind: type[B]) -> B:
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > MOST_BYTES:
                raise BadBodyError("the body is too large")
            parts.append(part)
    except ClientDisconnect:
        raise BadBodyError("the body has no end") from None
    try:
        return msgspec.json.decode(b"".join(parts) or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise BadBodyError(str(error)) from None


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json")


def _who(request: Request) -> str:
    host = request.client.host if request.client is not None else ""
    return name_of(int(host.removeprefix(PREFIX))) if host.startswith(PREFIX) else "a person"
