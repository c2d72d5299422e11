"""Speaks with an agent over its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec

from agent.control.listen import control_path
from agent.errors import KvtideError

TIMEOUT_SECONDS = 30.0  # what is ordered may wait for an engine's answer


class NoAgentError(KvtideError):
    """Nobody listens at the control socket."""


class ControlClient:
    """``socket``: the link's; the control socket is beside it. Raises :class:`KvtideError` with one line."""

    def __init__(self, socket: Path) -> None:
        self._path = control_path(socket)
        transport = httpx2.HTTPTransport(uds=str(self._path))
        self._http = httpx2.Client(transport=transport, base_url="http://agent", timeout=TIMEOUT_SECONDS)

    def post(self, path: str, body: object = None) -> Any:
        """Return what was answered."""
        return msgspec.json.decode(self._asked("POST", path, msgspec.json.encode(body or {})))

    def get(self, path: str) -> bytes:
        """Return what was answered, as it is."""
        return self._asked("GET", path, b"")

    def _asked(self, method: str, path: str, content: bytes) -> bytes:
        try:
            response = self._http.request(method, path, content=content)
        except (httpx2.ConnectError, FileNotFoundError) as error:
            raise NoAgentError(f"no agent at {self._path} ({error}); is it running, may this user open it?") from None
        except httpx2.HTTPError as error:
            raise KvtideError(f"{self._path}: {str(error) or type(error).__name__}") from None
        if response.status_code != httpx2.codes.OK:
            raise KvtideError(_error(response))
        return response.content


def _error(response: httpx2.Response) -> str:
    try:
        told = msgspec.json.decode(response.content)
        return str(told["error"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return f"the agent answered {response.status_code}"
