"""Addresses and paths in settings."""

from __future__ import annotations

import ipaddress
from pathlib import Path


def parse_listen(text: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` (IPv6 in brackets; port 0 takes a free one); raises ValueError."""
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65535:
        raise ValueError("must be HOST:PORT with a port of 0 to 65535, such as 127.0.0.1:9477 or [::1]:9477")
    host = host.removeprefix("[").removesuffix("]")
    if host != "localhost":
        ipaddress.ip_address(host)  # its ValueError says what is wrong
    return host, int(port)


def listen_address(text: str) -> str:
    """Return ``text`` if it is HOST:PORT; raises ValueError."""
    parse_listen(text)
    return text


def absolute_path(path: Path) -> Path:
    """Return ``path`` if it is absolute; raises ValueError."""
    if "\0" in str(path):
        raise ValueError("must not contain a zero byte")
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path
