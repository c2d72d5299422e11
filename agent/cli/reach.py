"""How a command shows an agent who it is, and whose certificates it believes: by files and the environment only.

What stands on a command line is read by every user of the host.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agent.errors import ConfigError

CREDENTIALS, CREDENTIALS_FILE = "KVTIDE_CREDENTIALS", "KVTIDE_CREDENTIALS_FILE"
CA_FILE, CERT_FILE, KEY_FILE = "KVTIDE_CA_FILE", "KVTIDE_CERT_FILE", "KVTIDE_CLIENT_KEY_FILE"
KNOWN_BY = f"{CREDENTIALS_FILE} names a file with USER:PASSWORD"
MOST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Reach:
    """``credentials``: name and password. ``tls``: True for the system's certificates."""

    credentials: tuple[str, str] | None
    tls: ssl.SSLContext | bool


def reach(url: str) -> Reach:
    """Return what the environment says for ``url``, which has a scheme; raises :class:`ConfigError`."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError as error:
        raise ConfigError(f"--url: {url!r}: {error}; it must be like http://127.0.0.1:9477") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"--url: a password on a command line is read by all; {KNOWN_BY}")
    known = _credentials()
    if known is not None and parts.scheme != "https" and not _here(host):
        raise ConfigError(f"--url: {url}: a password goes over https only, or to this host")
    return Reach(known, _tls() if parts.scheme == "https" else True)


def _credentials() -> tuple[str, str] | None:
    text, source = os.environ.get(CREDENTIALS, ""), CREDENTIALS
    if file := os.environ.get(CREDENTIALS_FILE):
        source = f"{CREDENTIALS_FILE}: {file}"
        try:
            with Path(file).open("rb") as opened:
                text = opened.read(MOST_BYTES).decode().splitlines()[0]
        except OSError as error:
            raise ConfigError(f"{source}: {error.strerror}") from None
        except (UnicodeDecodeError, IndexError):
            raise ConfigError(f"{source}: must be one line, USER:PASSWORD") from None
    if not text:
        return None
    name, colon, password = text.partition(":")
    if not (name and colon):
        raise ConfigError(f"{source}: must be one line, USER:PASSWORD")
    return name, password


def _tls() -> ssl.SSLContext | bool:
    ca, certificate, key = (os.environ.get(name) for name in (CA_FILE, CERT_FILE, KEY_FILE))
    if not (ca or certificate):
        return True
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except OSError as error:
        raise ConfigError(f"{CA_FILE}: {ca}: {_why(error)}") from None
    if certificate:
        try:
            context.load_cert_chain(certificate, key or None)
        except OSError as error:
            raise ConfigError(f"{CERT_FILE}: {certificate}, {KEY_FILE}: {key or '-'}: {_why(error)}") from None
    return context


def _why(error: OSError) -> str:
    return "not in PEM, or they don't belong together" if isinstance(error, ssl.SSLError) else str(error.strerror)


def _here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
