"""The rules of a running Prometheus, and how they differ from ours, as lines for a person."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import msgspec

from agent.errors import ConfigError, KvtideError
from agent.plain import plain
from agent.retained import count_of
from alerts.loaded import Compared, compare

MAX_BYTES = 32 << 20
SECONDS = 30.0
PATH = "/api/v1/rules"


def loaded(url: str, token_file: Path | None, files: Mapping[str, str]) -> Compared:
    """Compare ``files`` with what the Prometheus at ``url`` has; raises :class:`KvtideError` where it does not tell."""
    address = url.rstrip("/") + PATH
    shown = plain(address.rpartition("@")[2], 200)  # a password may stand before it
    headers = {"Accept": "application/json", "User-Agent": "kvtide"}
    if token_file is not None:
        headers["Authorization"] = f"Bearer {token_file.read_text(encoding='utf-8').strip()}"
    try:
        status, body = _get(address, headers)
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ConfigError(f"--url: must be like http://127.0.0.1:9090: {plain(str(error), 200)}") from None
    except httpx2.HTTPError as error:
        raise KvtideError(f"{shown}: no answer ({plain(str(error) or type(error).__name__, 200)})") from None
    if status != 200 or body is None:
        raise KvtideError(f"{shown}: {f'HTTP {status}' if body is not None else 'an answer that is too large or slow'}")
    try:
        answer: Any = msgspec.json.decode(body)
        return compare(files, answer["data"]["groups"])
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, AttributeError, ValueError):
        raise KvtideError(f"{shown}: what came is no answer of a Prometheus") from None


def _get(url: str, headers: dict[str, str]) -> tuple[int, bytes | None]:
    deadline, body = time.monotonic() + SECONDS, bytearray()
    with httpx2.stream("GET", url, headers=headers, timeout=SECONDS) as response:
        for piece in response.iter_bytes():
            body += piece
            if len(body) > MAX_BYTES or time.monotonic() > deadline:
                return response.status_code, None
        return response.status_code, bytes(body)


def told(found: Compared) -> Iterator[str]:
    """Yield what differs, a line each, and at the end how many rules do not."""
    for name in found.missing:
        yield f"missing: {name}"
    for name, parts in found.differing.items():
        yield f"differs: {name}: {', '.join(parts)}"
    for name in found.extra:
        yield f"extra: {name}: in a group of kvtide's, and not of this version"
    for name in found.left_out:
        yield f"not loaded, and needn't be: {name}"
    yield f"{count_of(found.same, 'rule')} as built"
