"""What a person gives as the address of a server, and the certificates that it is to be believed by."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import urlsplit

from agent.errors import ConfigError
from agent.plain import plain


def shown_address(url: str, option: str, like: str) -> str:
    """Return ``url`` as it may be shown: without user, password and query.

    Raises :class:`ConfigError` that names ``option`` where it is no address of a server, and ``like`` what would be.
    """
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError as error:
        raise ConfigError(f"{option}: not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{option}: {like}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return plain(f"{parts.scheme}://{host}{port}{parts.path}".rstrip("/"), 200)


def believed(ca_file: Path | None) -> ssl.SSLContext | bool:
    """Return what a client verifies servers by. Raises :class:`ConfigError` for a file that has no certificates."""
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # SSLError is one
        raise ConfigError(f"--ca-file {ca_file}: {error.strerror or error}") from None
