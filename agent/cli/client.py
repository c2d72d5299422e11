"""Reads an agent's state over its HTTP API."""

from __future__ import annotations

import httpx2
import msgspec

from agent.errors import KvtideError
from agent.state import AgentState

_decoder = msgspec.json.Decoder(AgentState)


class AgentClient:
    """One agent at ``url``, by HTTP where that has no scheme; keeps its connection.

    Raises :class:`KvtideError` with one line.
    """

    def __init__(self, url: str, timeout: float = 3.0) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        try:
            self._http = httpx2.Client(base_url=self._url, timeout=timeout)
        except (httpx2.InvalidURL, ValueError) as error:
            raise KvtideError(f"--url: {url}: {error}; it must be like http://127.0.0.1:9477") from None

    def state_json(self) -> bytes:
        """Return the state as the agent sent it."""
        try:
            response = self._http.get("/api/v1/state")
            response.raise_for_status()
        except httpx2.HTTPStatusError as error:
            raise KvtideError(f"{self._url}: answered {error.response.status_code}; is that a kvtide agent?") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            text = str(error) or type(error).__name__
            raise KvtideError(f"no agent answers at {self._url} ({text}); start it with: kvtide agent") from None
        return response.content

    def state_text(self) -> str:
        """Return the state as JSON that people can read."""
        content = self.state_json()
        try:
            return msgspec.json.format(content, indent=2).decode()
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise KvtideError(f"{self._url}: not JSON ({error}); is that a kvtide agent?") from None

    def state(self) -> AgentState:
        """Return the state."""
        content = self.state_json()
        try:
            return _decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise KvtideError(f"{self._url}: not a kvtide state ({error}); is the agent another version?") from None
