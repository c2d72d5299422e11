"""Whose an HTTP request is: what is read, who is believed, and that the application sees nothing of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from engine_hooks.frontend import hook
from engine_hooks.frontend.identify import Claims, claims_of, from_proxy
from engine_hooks.frontend.middleware import CLAIMS, HOOK, PEER_KEY, TenantMiddleware
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard
from engine_hooks.names import short_hash

PROXY, STRANGER = "10.1.2.3", "192.0.2.1"
SETTINGS = TenantSettings.from_environment(
    {
        "KVTIDE_TENANT_FROM": "header:X-Tenant,user,api_key,header:X-Team",
        "KVTIDE_TRUSTED_PROXIES": "10.0.0.0/8,fd00::/8",
    }
)


def headers(*pairs: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in pairs]


FULL = headers(("x-tenant", "acme"), ("authorization", "Bearer secret1"), ("x-session-id", "talk"))


def claims(found: list[tuple[bytes, bytes]] = FULL, peer: str | None = PROXY, *, authenticated: bool = False) -> Claims:
    return claims_of(SETTINGS, found, peer, authenticated=authenticated)


# -- who is believed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "authenticated"), [(PROXY, False), (STRANGER, True), ("fd00::1", False), (None, True)]
)
def test_a_listed_proxy_or_an_authenticated_client_is_believed(peer: str | None, authenticated: bool) -> None:
    found = claims(peer=peer, authenticated=authenticated)
    found.note_user("bob")
    assert found.front == {"header:x-tenant": "acme", "api_key": short_hash("secret1"), "user": "bob"}
    assert found.session == "talk"


@pytest.mark.parametrize("peer", [STRANGER, "", "fe80::1%eth0", "not an address", None])
def test_a_stranger_is_not_but_for_its_session(peer: str | None) -> None:
    found = claims(peer=peer)
    found.note_user("bob")
    assert found == Claims(trusted=False, front={}, session="talk")


@pytest.mark.parametrize(
    ("listed", "peer", "believed"),
    [
        ("10.0.0.0/8", "10.255.0.1", True),
        ("10.0.0.0/8", "::ffff:10.0.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("::ffff:0:0/96", "::ffff:10.0.0.1", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("fe80::/10", "10.0.0.1", False),
        ("10.0.0.0/8", None, False),
        ("unix", None, True),
        ("unix", "10.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_proxies(listed: str, peer: str | None, believed: bool) -> None:
    settings = TenantSettings.from_environment({"KVTIDE_TRUSTED_PROXIES": listed})
    assert from_proxy(settings, peer) is believed


# -- what is read -----------------------------------------------------------------------------------------------


def test_a_header_that_comes_twice_does_not_count() -> None:
    twice = headers(("x-tenant", "acme"), ("x-tenant", "umbrella"), ("x-team", "blue"))
    assert claims(twice).front == {"header:x-team": "blue"}


@pytest.mark.parametrize("value", ["", "  ", "Basic secret1", "Bearer", "Bearer "])
def test_what_is_no_key_is_none(value: str) -> None:
    assert "api_key" not in claims(headers(("authorization", value))).front


def test_a_key_is_never_kept() -> None:
    assert "secret1" not in repr(claims())


def test_headers_that_nobody_listed_are_not_read() -> None:
    found = claims_of(TenantSettings(), FULL, PROXY, authenticated=True)
    assert found.front == {"api_key": short_hash("secret1")}


@pytest.mark.parametrize("user", [None, "", 5, ["bob"]])
def test_what_is_no_user_is_none(user: object) -> None:
    found = claims()
    found.note_user(user)
    assert "user" not in found.front


def test_long_and_strange_values_stay_bounded() -> None:
    found = claims(headers(("x-session-id", "é" * 100_000), ("x-tenant", "x" * 100_000)))
    assert len(found.session) == 64
    assert found.session.isascii()
    assert len(SETTINGS.of_request(None, None, found.front)) == 64


# -- the middleware ---------------------------------------------------------------------------------------------


class App:
    """An ASGI application that reads its body and answers, and notes whose the request is when it does so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.seen: list[Claims | None] = []
        self.bodies: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append(await receive())
        await send({"type": "http.response.start"})

        async def stream() -> None:
            self.seen.append(CLAIMS.get())

        await asyncio.create_task(stream())  # as a streamed answer is sent
        if self.error is not None:
            raise self.error


class Server:
    """Sends one request through the middleware."""

    def __init__(self, app: App, verify: Any = None) -> None:
        self.app = app
        self.guard = Guard()
        self.sent: list[Any] = []
        self.asked = 0
        self.stack = TenantMiddleware(app, settings=SETTINGS, guard=self.guard, verify=verify)

    async def request(self, **scope: Any) -> None:
        async def receive() -> Any:
            self.asked += 1
            return {"type": "http.request", "body": b"x" * 100}

        async def send(message: Any) -> None:
            self.sent.append(message)

        await self.stack({"type": "http", "headers": FULL, "client": (STRANGER, 5), **scope}, receive, send)


async def test_claims_last_as_long_as_the_request() -> None:
    server = Server(App(), verify=lambda scope: True)
    await server.request()
    assert CLAIMS.get() is None
    (seen,) = server.app.seen
    assert seen is not None
    assert seen.front["header:x-tenant"] == "acme"
    assert (server.asked, server.app.bodies[0]["body"]) == (1, b"x" * 100)
    assert server.sent == [{"type": "http.response.start"}]


async def test_requests_at_the_same_time_do_not_mix() -> None:
    server = Server(App(), verify=lambda scope: True)
    names = [f"t{i}" for i in range(20)]
    await asyncio.gather(*(server.request(headers=headers(("x-tenant", name))) for name in names))
    assert sorted(claims.front["header:x-tenant"] for claims in server.app.seen if claims) == sorted(names)


async def test_the_peer_counts_and_not_the_address_that_was_forwarded() -> None:
    server = Server(App())
    await server.request(**{PEER_KEY: (STRANGER, 5)}, client=(PROXY, 0))
    await server.request(**{PEER_KEY: (PROXY, 5)}, client=(STRANGER, 0))
    await server.request(client=(PROXY, 5))
    assert [claims.trusted for claims in server.app.seen if claims] == [False, True, True]


async def test_an_application_inside_another_does_not_ask_again() -> None:
    inner = Server(App())
    outer = Server(inner.stack, verify=lambda scope: True)  # type: ignore[arg-type]
    await outer.request()
    assert [claims.trusted for claims in inner.app.seen if claims] == [True]


async def test_a_lifespan_passes_through() -> None:
    server = Server(App())
    await server.request(type="lifespan")
    assert server.app.seen == [None]


async def test_the_applications_error_comes_through_and_leaves_nothing() -> None:
    server = Server(App(RuntimeError("planted")), verify=lambda scope: True)
    with pytest.raises(RuntimeError, match="planted"):
        await server.request()
    assert CLAIMS.get() is None
    assert server.guard.errors == {}


async def test_our_own_error_leaves_the_request_to_the_application_unmarked() -> None:
    def broken(scope: Any) -> bool:
        raise RuntimeError("planted")

    server = Server(App(), verify=broken)
    await server.request()
    assert (server.app.seen, len(server.sent)) == ([None], 1)
    assert server.guard.errors == {"front_end": 1}


def test_what_raises_while_the_user_is_noted_costs_the_name_alone() -> None:
    class Broken(Claims):
        def note_user(self, user: object) -> None:
            raise ValueError(user)

    guard = Guard()
    parsed = hook._noting_the_user(lambda request: request.user, guard)
    token = CLAIMS.set(Broken())
    try:
        assert [parsed(SimpleNamespace(user="bob")) for _ in range(2)] == ["bob", "bob"]
    finally:
        CLAIMS.reset(token)
    assert guard.errors == {HOOK: 2}
