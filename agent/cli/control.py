"""Speaks with an agent over its control socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec

from agent.config import MAX_SOCKET_PATH
from agent.control.listen import control_path
from agent.errors import KvtideError

TIMEOUT_SECONDS = 30.0  # what is ordered may wait for an engine's answer
SUPERVISED_SECONDS = 11_000.0  # drained for an hour at most, started for two: see SupervisorConfig


class NoAgentError(KvtideError):
    """Nobody listens at the control socket."""


class AskedWrongError(KvtideError):
    """What was asked for can be asked of nobody."""

    exit_code = 2


class ControlClient:
    """``socket``: the link's; the control socket is beside it, or where ``KVTIDE_CONTROL`` says.

    Raises :class:`KvtideError` with one line.
    """

    def __init__(self, socket: Path) -> None:
        self._path = control_path(socket)
        size = len(str(self._path).encode())
        if size > MAX_SOCKET_PATH:
            raise KvtideError(
                f"{self._path}: the path has {size} bytes, {MAX_SOCKET_PATH} are allowed (KVTIDE_CONTROL)"
            )
        transport = httpx2.HTTPTransport(uds=str(self._path))
        self._http = httpx2.Client(transport=transport, base_url="http://agent", timeout=TIMEOUT_SECONDS)

    def post(self, path: str, body: object = None, seconds: float = TIMEOUT_SECONDS) -> Any:
        """Return what was answered, within so many seconds."""
        return msgspec.json.decode(self._asked("POST", path, msgspec.json.encode(body or {}), seconds))

    def get(self, path: str) -> bytes:
        """Return what was answered, as it is."""
        return self._asked("GET", path, b"", TIMEOUT_SECONDS)

    def _asked(self, method: str, path: str, content: bytes, seconds: float) -> bytes:
        try:
            response = self._http.request(method, path, content=content, timeout=seconds)
        except (httpx2.ConnectError, FileNotFoundError) as error:
            raise NoAgentError(
                f"no agent at {self._path} ({error}): is it running, may this user open that? "
                "Where its socket is elsewhere, name it: --socket, KVTIDE_SOCKET"
            ) from None
        except httpx2.ReadTimeout:
            after = f"the agent has not answered within {seconds:g} s"
            raise KvtideError(f"{after}: what was asked for may still be done; see: kvtide actions list") from None
        except (httpx2.ReadError, httpx2.RemoteProtocolError) as error:
            ended = f"{self._path}: the agent ended before it had answered ({str(error) or type(error).__name__})"
            raise KvtideError(f"{ended}: what was asked for may be done; see: kvtide actions list") from None
        except httpx2.HTTPError as error:
            raise KvtideError(f"{self._path}: {str(error) or type(error).__name__}") from None
        if response.status_code == httpx2.codes.BAD_REQUEST:
            raise AskedWrongError(_error(response))
        if response.status_code != httpx2.codes.OK:
            raise KvtideError(_error(response))
        return response.content


def _error(response: httpx2.Response) -> str:
    try:
        told = msgspec.json.decode(response.content)
        return str(told["error"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return f"the agent answered {response.status_code}"
