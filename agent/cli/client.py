"""Reads an agent's state over its HTTP API."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx2
import msgspec

from agent.cli.reach import KNOWN_BY, reach
from agent.errors import ConfigError, KvtideError
from agent.state import AgentState
from agent.tide import Moment, moment_from

MOST_BYTES = 64 << 20  # of a state
WHOLE_SECONDS = 10.0  # for all of it
_SHOWN = 500  # characters of what an agent says is wrong
_decoder = msgspec.json.Decoder(AgentState)
_tides = msgspec.json.Decoder(dict[str, list[dict[str, float | None]]])


@contextmanager
def _made(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file, for its owner alone; it is removed where not all of it could be written."""
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        try:
            yield file
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise


class AgentClient:
    """One agent at ``url``, by HTTP where that has no scheme; keeps its connection. Who asks, and which certificates
    are believed, is told by the environment: :mod:`agent.cli.reach`.

    Raises :class:`KvtideError` with one line, :class:`ConfigError` where ``url`` is no address.
    """

    def __init__(self, url: str, timeout: float = 3.0) -> None:
        self._url = (url if "://" in url else f"http://{url}").rstrip("/")
        who = reach(self._url)
        try:
            self._http = httpx2.Client(base_url=self._url, timeout=timeout, auth=who.credentials, verify=who.tls)
            why = "" if self._http.base_url.host else "no host"
            if self._http.base_url.scheme not in ("http", "https"):
                why = "neither http nor https"
        except (httpx2.InvalidURL, ValueError) as error:
            why = str(error)
        if why:
            raise ConfigError(f"--url: {url!r}: {why}; it must be like http://127.0.0.1:9477")

    def state_json(self) -> bytes:
        """Return the state as the agent sent it."""
        return self._whole("/api/v1/state")

    def _whole(self, path: str) -> bytes:
        """Return an answer's content. One that has no end is given up: it may be of anybody."""
        parts, size, began = [], 0, time.monotonic()
        try:
            with self._http.stream("GET", path) as response:
                response.raise_for_status()
                for part in response.iter_bytes():
                    parts.append(part)
                    size += len(part)
                    if size > MOST_BYTES:
                        raise KvtideError(f"{self._url}: answers with more than {MOST_BYTES >> 20} MiB")
                    if time.monotonic() - began > WHOLE_SECONDS:
                        raise KvtideError(f"{self._url}: its answer takes longer than {WHOLE_SECONDS:g} s")
        except httpx2.HTTPStatusError as error:
            if error.response.status_code == httpx2.codes.UNAUTHORIZED:
                raise KvtideError(f"{self._url}: it wants to know who asks, or another password; {KNOWN_BY}") from None
            raise KvtideError(f"{self._url}: answered {error.response.status_code}; is that a kvtide agent?") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._no_answer(error) from None
        return b"".join(parts)

    def _no_answer(self, error: Exception) -> KvtideError:
        if isinstance(error, httpx2.ReadTimeout | httpx2.WriteTimeout | httpx2.PoolTimeout):
            return KvtideError(
                f"{self._url}: something listens there and does not answer: is the agent stopped, or short of CPU? "
                "systemctl status kvtide"
            )
        text = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in text or "certificate required" in text:
            return KvtideError(f"{self._url}: {text}; KVTIDE_CA_FILE names the certificates that are believed")
        if "WRONG_VERSION_NUMBER" in text:
            return KvtideError(f"{self._url}: what answers there speaks no TLS; is it http:// and not https://?")
        if isinstance(error, httpx2.RemoteProtocolError) and self._url.startswith("http:"):
            return KvtideError(f"{self._url}: what answers there ends without an answer; does it speak TLS (https://)?")
        if "[Errno -" in text:  # of a resolver: it is the name that is wrong, or the resolver
            return KvtideError(f"no agent answers at {self._url}: that host is not known here ({text})")
        return KvtideError(f"no agent answers at {self._url} ({text}); start it with: kvtide agent")

    def save_recording(self, minutes: float, path: Path) -> int:
        """Save a bundle of the last ``minutes`` at ``path``, which must not be there yet; return its size in bytes."""
        size = 0
        try:
            with self._http.stream("GET", "/api/v1/record", params={"minutes": minutes}) as response:
                if response.status_code != httpx2.codes.OK:
                    why = response.read()[:_SHOWN].decode(errors="replace").strip()
                    raise KvtideError(f"{self._url}: {why or f'answered {response.status_code}'}")
                with _made(path) as file:
                    for part in response.iter_bytes():
                        size += file.write(part)
        except FileExistsError:
            raise KvtideError(f"{path}: is there already; choose another by --out") from None
        except OSError as error:
            raise KvtideError(f"{path}: {error.strerror}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._no_answer(error) from None
        return size

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
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise KvtideError(f"{self._url}: not a kvtide state ({error}); is the agent another version?") from None

    def tides(self) -> dict[str, tuple[Moment, ...]]:
        """Return the last half an hour of each engine's pool, by its label, the oldest first."""
        content = self._whole("/api/v1/tide")
        try:
            return {name: tuple(map(moment_from, rows)) for name, rows in _tides.decode(content).items()}
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError) as error:
            raise KvtideError(f"{self._url}: not kvtide's tides ({error}); is the agent another version?") from None
