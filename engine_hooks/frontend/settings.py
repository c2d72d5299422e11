"""What ``KVTIDE_*`` says about tenants and sessions: where their names come from, and who is believed.

A bad value never stops an engine: it is reported in one line and the default is used.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine_hooks.frontend.tenant_map import OTHER, TenantMap, TenantMapError, read_map
from engine_hooks.names import NO_TENANT, printable, short_hash

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PLAIN_SOURCES = ("user", "api_key", "cache_salt", "lora")
# In the order of how hard they are to forge. Headers are read only where somebody listed them.
DEFAULT_SOURCES = ("api_key", "cache_salt", "lora", "user")
DEFAULT_SESSION_HEADER = "x-session-id"
UNIX = "unix"  # in the list of proxies: whoever connects through a Unix socket
# Sources whose value is a secret or as good as one: only its hash is ever kept, and looked up in the map.
_SECRET = {"api_key": "key", "cache_salt": "salt"}
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")  # a header's name, RFC 9110 section 5.6.2


@dataclass(frozen=True, slots=True)
class TenantSettings:
    """``sources``: where a tenant's name is looked for, the first that has one wins. ``session_header``: lower case.

    ``proxies``: networks whose peers are believed without authentication; ``unix_trusted``: those on a Unix socket too.
    ``hashed``: what clients call themselves shows as a hash, unless the map names it.
    """

    sources: tuple[str, ...] = DEFAULT_SOURCES
    session_header: str = DEFAULT_SESSION_HEADER
    proxies: tuple[Network, ...] = ()
    unix_trusted: bool = False
    map: TenantMap = field(default_factory=TenantMap)
    hashed: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> TenantSettings:
        """Read ``KVTIDE_TENANT_FROM``, ``_TENANT_MAP``, ``_HASH_TENANTS``, ``_SESSION_HEADER``, ``_TRUSTED_PROXIES``"""
        proxies, unix_trusted = _proxies(env.get("KVTIDE_TRUSTED_PROXIES", ""))
        return cls(
            sources=_sources(env.get("KVTIDE_TENANT_FROM", "")),
            session_header=_session_header(env.get("KVTIDE_SESSION_HEADER", "")),
            proxies=proxies,
            unix_trusted=unix_trusted,
            map=_map(env.get("KVTIDE_TENANT_MAP", "").strip()),
            hashed=env.get("KVTIDE_HASH_TENANTS", "").strip().lower() not in ("", "0", "false", "no"),
        )

    @property
    def headers(self) -> frozenset[bytes]:
        """The names of the headers that are read, as ASGI has them."""
        named = {source.partition(":")[2] for source in self.sources if source.startswith("header:")}
        return frozenset(name.encode() for name in {*named, self.session_header, "authorization"})

    def tenant(self, source: str, value: str) -> str:
        """Return the tenant that ``value`` of ``source`` stands for. Secrets are hashed here, unless they come hashed.

        A value that is in no map is its own name, but never one that the map keeps for others.
        """
        mapped = self.map.members.get(f"{source}:{value}")
        if mapped is not None:
            return mapped
        kind = source.partition(":")[0]
        if kind in _SECRET:
            return f"{_SECRET[kind]}-{value}"
        name = printable(value)
        named = name == value and name in self.map.quotas and name not in self.map.reserved
        if self.hashed and kind != "lora" and not named:
            return f"{kind}-{short_hash(value)}"
        taken = name in self.map.reserved or name in (OTHER, NO_TENANT)
        if taken or name.startswith(tuple(f"{prefix}-" for prefix in _SECRET.values())):
            return printable(f"{kind}-{value}")
        return name

    def of_request(self, cache_salt: str | None, lora: str | None, front: Mapping[str, str]) -> str:
        """Return a request's tenant, "" where no source names one.

        ``front``: what the front end believes, by source; the two others travel with every request.
        """
        values = {**front}
        if cache_salt:
            values["cache_salt"] = short_hash(cache_salt)
        if lora:
            values["lora"] = lora
        for source in self.sources:
            if value := values.get(source):
                return self.tenant(source, value)
        return ""


def _sources(text: str) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    found = []
    for word in words:
        kind, colon, name = word.partition(":")
        source = f"header:{name.strip().lower()}" if kind == "header" and colon else word
        # The key has a source of its own, which hashes it.
        known = kind == "header" and _TOKEN.fullmatch(source[len("header:") :]) and source != "header:authorization"
        if source not in PLAIN_SOURCES and not known:
            allowed = ", ".join((*PLAIN_SOURCES, "header:NAME"))
            logger.warning(
                "kvtide: KVTIDE_TENANT_FROM: no source %r, allowed are %s; using %s instead",
                word[:80],
                allowed,
                ",".join(DEFAULT_SOURCES),
            )
            return DEFAULT_SOURCES
        found.append(source)
    return tuple(dict.fromkeys(found)) or DEFAULT_SOURCES


def _session_header(text: str) -> str:
    name = text.strip().lower() or DEFAULT_SESSION_HEADER
    if _TOKEN.fullmatch(name):
        return name
    logger.warning(
        "kvtide: KVTIDE_SESSION_HEADER: %r is no header's name; using %s instead", text[:80], DEFAULT_SESSION_HEADER
    )
    return DEFAULT_SESSION_HEADER


def _proxies(text: str) -> tuple[tuple[Network, ...], bool]:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    try:
        networks = tuple(ipaddress.ip_network(word) for word in words if word != UNIX)
    except ValueError as error:
        logger.warning("kvtide: KVTIDE_TRUSTED_PROXIES: %s; no proxy is trusted", " ".join(str(error).split())[:200])
        return (), False
    return networks, UNIX in words


def _map(text: str) -> TenantMap:
    if not text:
        return TenantMap()
    try:
        return read_map(Path(text))
    except TenantMapError as error:
        logger.warning("kvtide: KVTIDE_TENANT_MAP: %s; going on without a map", " ".join(str(error).split())[:300])
        return TenantMap()
