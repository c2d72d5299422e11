"""The web configuration file, in the format of Prometheus' exporter-toolkit: TLS, users, headers.

What of that format can't be had here is refused with the reason: a file that says more than is done would be a lie.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from agent.settings_file import OUT_OF_ORDER
from agent.sources.config import Section

ClientAuth = Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
Version = Literal["TLS12", "TLS13"]

LOWEST_COST, HIGHEST_COST = 4, 14  # 14: about a second for one check
MOST_USERS = 256
_HASH = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
_HEADERS = {
    "Content-Security-Policy": None,
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-Content-Type-Options": ("nosniff",),
    "X-XSS-Protection": None,
    "Strict-Transport-Security": None,
}
# As Go calls them: as OpenSSL does.
CIPHERS = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}


def _wrong(why: str, key: str, value: str) -> PydanticCustomError:
    return PydanticCustomError(OUT_OF_ORDER, why, {"key": key, "value": value})


def _users(given: Any) -> dict[str, str]:
    """Return names and hashes; what stands in their place is never shown: it may be a password."""
    if given is None:
        return {}
    if not isinstance(given, dict) or len(given) > MOST_USERS:
        raise _wrong(f"must be a mapping of at most {MOST_USERS} names to bcrypt hashes", "*", "(not shown)")
    for name, value in given.items():
        if not isinstance(name, str) or not name or ":" in name or not name.isprintable():
            raise _wrong("a name must be text that can be printed, without a colon", repr(name)[:80], "(not shown)")
        match = _HASH.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise _wrong("must be a bcrypt hash; make one with: kvtide web hash", name[:80], "(not shown)")
        if not LOWEST_COST <= int(match[1]) <= HIGHEST_COST:
            why = f"the cost of the hash must be {LOWEST_COST} to {HIGHEST_COST}; usual is 10"
            raise _wrong(why, name[:80], f"cost {int(match[1])}")
    return given


def _headers(given: Any) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _wrong(f"must be a mapping; allowed here: {', '.join(_HEADERS)}", "*", repr(given)[:80])
    for name, value in given.items():
        if name not in _HEADERS:
            raise _wrong(f"allowed here: {', '.join(_HEADERS)}", str(name)[:80], "unknown header")
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise _wrong("must be one line of ASCII", name, repr(value)[:80])
        allowed = _HEADERS[name]
        if allowed is not None and value.lower() not in allowed:
            raise _wrong(f"must be {' or '.join(allowed)}", name, value[:80])
    return given


def _client_auth(given: Any) -> Any:
    if given in ("RequestClientCert", "RequireAnyClientCert"):
        raise ValueError("asks for a certificate that nobody checks: not done here; use RequireAndVerifyClientCert")
    return given


def _version(given: Any) -> Any:
    if given in ("TLS10", "TLS11"):
        raise ValueError("is broken: TLS12 or TLS13")
    return given


def _section(given: Any) -> Any:
    return {} if given is None else given


class TlsConfig(Section):
    """Paths are relative to the file's folder."""

    cert_file: Path | None = None
    key_file: Path | None = None
    client_auth_type: Annotated[ClientAuth, BeforeValidator(_client_auth)] = "NoClientCert"
    client_ca_file: Path | None = None
    client_allowed_sans: tuple[str, ...] = ()
    min_version: Annotated[Version, BeforeValidator(_version)] = "TLS12"
    max_version: Annotated[Version, BeforeValidator(_version)] = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True

    @model_validator(mode="after")
    def _fits(self) -> TlsConfig:
        if (self.cert_file is None) != (self.key_file is None):
            missing = "cert_file" if self.cert_file is None else "key_file"
            raise _wrong("cert_file and key_file: both or none", missing, "missing")
        if self.cert_file is None and self.model_fields_set:
            raise _wrong("without a certificate there is no TLS", "cert_file", "missing")
        if (self.client_auth_type == "NoClientCert") != (self.client_ca_file is None):
            if self.client_ca_file is None:
                raise _wrong(f"client_auth_type: {self.client_auth_type} needs it", "client_ca_file", "missing")
            why = "with a client_ca_file it must be VerifyClientCertIfGiven or RequireAndVerifyClientCert"
            raise _wrong(why, "client_auth_type", self.client_auth_type)
        if self.client_allowed_sans and self.client_auth_type != "RequireAndVerifyClientCert":
            why = "client_allowed_sans needs RequireAndVerifyClientCert"
            raise _wrong(why, "client_auth_type", self.client_auth_type)
        if self.min_version > self.max_version:
            raise _wrong(f"must not be above max_version, {self.max_version}", "min_version", self.min_version)
        for name in self.cipher_suites:
            if name not in CIPHERS and not name.startswith(("TLS_AES_", "TLS_CHACHA20_")):
                raise _wrong(f"allowed here: {', '.join(CIPHERS)}", "cipher_suites", name[:80])
        return self


class HttpServerConfig(Section):
    """``http2`` is a permission, and HTTP/1.1 is all that is spoken here. ``headers`` are added to each answer."""

    http2: bool = True
    headers: Annotated[dict[str, str], BeforeValidator(_headers)] = Field(default_factory=dict)


class WebConfig(Section):
    """The whole file."""

    tls_server_config: Annotated[TlsConfig, BeforeValidator(_section)] = TlsConfig()
    http_server_config: Annotated[HttpServerConfig, BeforeValidator(_section)] = HttpServerConfig()
    basic_auth_users: Annotated[dict[str, str], BeforeValidator(_users)] = Field(default_factory=dict)
