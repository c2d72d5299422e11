"""Whose an HTTP request is, by what it says and who says so. Pure: no server, no clock.

A name in a header or in the body is only a claim. It is believed from a listed proxy, or after the engine's own
authentication; anybody else's is not even read. The API key itself is never kept: its hash is.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.names import printable, short_hash

_BEARER = "bearer"


@dataclass(slots=True)
class Claims:
    """What one HTTP request says of itself and is believed in, by source; ``session``: "" where it names none.

    ``trusted``: whether the body's ``user`` is believed too. It is known only once the body is parsed: the parsed
    request hands it in by :meth:`note_user`.
    """

    trusted: bool = False
    front: dict[str, str] = field(default_factory=dict)
    session: str = ""

    def note_user(self, user: object) -> None:
        """Take the OpenAI ``user`` field, if this request is believed at all."""
        if self.trusted and isinstance(user, str) and user:
            self.front["user"] = user


def claims_of(
    settings: TenantSettings, headers: Iterable[tuple[bytes, bytes]], peer: str | None, *, authenticated: bool
) -> Claims:
    """Return the claims of a request with these ASGI ``headers`` (lower case) from ``peer`` (None: a Unix socket).

    A tenant's header that comes twice is a client's beside the proxy's, and can't be told from it: neither counts.
    """
    wanted = settings.headers
    seen: dict[str, list[str]] = {}
    for name, value in headers:
        if name in wanted:
            seen.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1").strip())
    claims = Claims(trusted=authenticated or from_proxy(settings, peer))
    session = seen.get(settings.session_header, [""])[0]
    claims.session = printable(session)
    if not claims.trusted:
        return claims
    for source in settings.sources:
        values = seen.get(source.removeprefix("header:"), []) if source.startswith("header:") else []
        if len(values) == 1 and values[0]:
            claims.front[source] = values[0]
    scheme, _, key = seen.get("authorization", [""])[0].partition(" ")
    if scheme.lower() == _BEARER and key:
        claims.front["api_key"] = short_hash(key)
    return claims


def from_proxy(settings: TenantSettings, peer: str | None) -> bool:
    """Whether the process at the other end of the connection is one that is believed."""
    if peer is None:
        return settings.unix_trusted
    if not settings.proxies:
        return False
    try:
        address = ipaddress.ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)  # an IPv4 peer of a socket that listens on both
    return any(address in network or (mapped is not None and mapped in network) for network in settings.proxies)
