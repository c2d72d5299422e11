"""JSON over HTTP, bounded in time and size: for the webhook and for Kubernetes' API."""

from __future__ import annotations

import asyncio
import email.utils
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from agent.balancer.coordinator import TIMEOUT_SECONDS, CoordinatorError
from agent.plain import plain

MOST_BYTES = 8 << 20
CALL_SECONDS = TIMEOUT_SECONDS / 2
WHOLE_SECONDS = 10.0  # of an answer that comes in small pieces


class Answer(NamedTuple):
    """``body`` is what the JSON was; ``skew_seconds``: how far the server's clock is ahead of ours, to a second."""

    status: int
    body: dict[str, Any]
    skew_seconds: float


class JsonClient:
    """Talks with ``url``. ``token_file`` is read anew for each call, for tokens are renewed; ``wall``: Unix time."""

    def __init__(
        self, url: str, token_file: Path | None, ca_file: Path | None, wall: Callable[[], float] = time.time
    ) -> None:
        self._url, self._token_file, self._ca_file, self._wall = url.rstrip("/"), token_file, ca_file, wall
        self._http: httpx2.AsyncClient | None = None

    async def call(self, method: str, path: str = "", body: Any = None, kind: str = "application/json") -> Answer:
        """Return what is answered, whatever its status; raises :class:`CoordinatorError` where nothing sound is."""
        data = bytearray()
        try:
            headers = self._headers(kind if body is not None else None)
            content = None if body is None else json.dumps(body).encode()
            client = self._http = self._http or self._client()
            async with (
                asyncio.timeout(WHOLE_SECONDS),
                client.stream(method, self._url + path, headers=headers, content=content) as response,
            ):
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > MOST_BYTES:
                        raise CoordinatorError(f"{self._url}: more than {MOST_BYTES >> 20} MiB")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            text = f"no whole answer within {WHOLE_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
            raise CoordinatorError(f"{self._url}: {plain(text, 200) or type(error).__name__}") from None
        try:
            found = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            found = None
        if response.status_code < 300 and not isinstance(found, dict):
            raise CoordinatorError(f"{self._url}: HTTP {response.status_code} without a JSON object")
        return Answer(response.status_code, found if isinstance(found, dict) else {}, self._skew(response))

    async def close(self) -> None:
        """End the connections."""
        if self._http is not None:
            await self._http.aclose()

    def _client(self) -> httpx2.AsyncClient:
        tls = ssl.create_default_context(cafile=self._ca_file) if self._url.startswith("https:") else False
        # No environment's proxy: what is asked is in the cluster, and the token must not go elsewhere.
        return httpx2.AsyncClient(timeout=CALL_SECONDS, verify=tls, trust_env=False)

    def _headers(self, kind: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "kvtide"}
        if kind is not None:
            headers["Content-Type"] = kind
        if self._token_file is not None:
            try:
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"
            except UnicodeDecodeError:
                raise CoordinatorError(f"{self._token_file}: must be a token, in ASCII") from None
        return headers

    def _skew(self, response: httpx2.Response) -> float:
        try:
            there = email.utils.parsedate_to_datetime(response.headers.get("date", "")).timestamp()
        except (TypeError, ValueError):
            return 0.0
        return there - self._wall()


def refused(answer: Answer, what: str) -> CoordinatorError:
    """Return the error for an answer that is not what was asked for, in the server's own words."""
    message = answer.body.get("message")
    words = f": {plain(message, 200)}" if isinstance(message, str) else ""
    return CoordinatorError(f"{what}: HTTP {answer.status}{words}")
