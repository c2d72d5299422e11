"""One GET of a page: where to, with which token, and what went wrong in words."""

from __future__ import annotations

import socket
import ssl
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from agent.plain import plain
from agent.sources.scrape.http1 import Answer, Connection, HttpError

MAX_BYTES = 8 * 1024 * 1024
MAX_REDIRECTS = 2
# Not gzip: it would cost the engine's API server more than the bytes cost us.
_HEADERS = {"Accept": "text/plain;version=0.0.4,*/*;q=0.1", "Accept-Encoding": "identity", "User-Agent": "kvtide"}
_REDIRECTS = {301, 302, 303, 307, 308}
_WHY = {
    401: "it wants a token: see bearer_token_file",
    403: "it does not let us: see bearer_token_file",
    404: "there is no page; SGLang has one only with --enable-metrics",
}


def shown_url(url: str) -> str:
    """Return ``url`` for people: without a password, and without what it asks for, which may be a token."""
    parts = urlsplit(url)
    asks = "?..." if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{asks}"


class FetchError(Exception):
    """No page came; the text says why. ``answered``: something spoke HTTP with us."""

    def __init__(self, text: str, answered: bool = False) -> None:
        super().__init__(text)
        self.answered = answered


class Fetched(NamedTuple):
    """The body, and for how long a cache on the way says to have kept it (0 where there is none)."""

    text: str
    age_seconds: float


class Fetcher:
    """Gets one URL again and again. ``timeout``: seconds for a whole GET; ``clock``: monotonic seconds."""

    def __init__(
        self,
        url: str,
        timeout: float,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(url)
        self._url = parts._replace(path="/metrics") if parts.path in ("", "/") else parts
        self._timeout = timeout
        self._token_file, self._ca_file = token_file, ca_file
        self._clock = clock
        self._connection: Connection | None = None

    @property
    def standard(self) -> bool:
        """Whether the URL is that of a server's usual page, with nothing asked of it."""
        return self._url.path == "/metrics" and not self._url.query

    def get(self, query: str = "") -> Fetched:
        """Return the page, or the part of a usual one that ``query`` asks for; raises :class:`FetchError`."""
        url = self._url._replace(path="/metrics/", query=query) if query else self._url
        try:
            answer = self._answer(url, self._clock() + self._timeout)
            text = _text(answer)
        except (OSError, HttpError) as error:
            raise FetchError(self._words(error)) from None
        age = answer.headers.get("age", "")
        return Fetched(text, float(age) if age.isascii() and age.isdecimal() and len(age) < 10 else 0.0)

    def close(self) -> None:
        """End the connection; a GET under way on another thread fails at once."""
        if self._connection is not None:
            self._connection.close()

    def _answer(self, url: SplitResult, deadline: float) -> Answer:
        connection = self._connection = self._connection or self._connect()
        headers = self._headers()
        for _ in range(MAX_REDIRECTS + 1):
            target = f"{url.path}?{url.query}" if url.query else url.path
            answer = connection.get(target, headers, deadline, MAX_BYTES)
            if answer.status not in _REDIRECTS:
                break
            url = self._followed(url, answer.headers.get("location", ""))
        if answer.status != 200:
            why = _WHY.get(answer.status, plain(answer.reason[:60]))
            raise FetchError(f"HTTP {answer.status}" + (f": {why}" if why else ""), answered=True)
        return answer

    def _connect(self) -> Connection:
        tls = None
        if self._url.scheme == "https":
            try:
                tls = ssl.create_default_context(cafile=self._ca_file)
            except OSError as error:  # SSLError is one
                raise FetchError(f"tls_ca_file {self._ca_file}: {error.strerror or error}") from None
        port = self._url.port or (80 if tls is None else 443)
        return Connection(self._url.hostname or "", port, tls, self._clock)

    def _headers(self) -> dict[str, str]:
        if self._token_file is None:
            return _HEADERS
        try:
            token = self._token_file.read_text().strip()  # each time: it may be renewed
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise FetchError(f"bearer_token_file {self._token_file}: {why}") from None
        if not token.isascii() or not token.isprintable() or not token:
            raise FetchError(f"bearer_token_file {self._token_file}: there is no token in it")
        return _HEADERS | {"Authorization": f"Bearer {token}"}

    def _followed(self, url: SplitResult, location: str) -> SplitResult:
        try:
            target = urlsplit(urljoin(url.geturl(), location))
        except ValueError:
            raise HttpError("it sends us to what is no URL") from None
        if (target.scheme, target.netloc) != (url.scheme, url.netloc):  # it would get our token
            shown = plain(shown_url(target.geturl())[:100])
            raise FetchError(f"it sends us to {shown}: if that is right, give that URL", answered=True)
        if not (target.path + target.query).isascii() or " " in target.path + target.query:
            raise HttpError("it sends us to what is no URL")
        return target

    def _words(self, error: Exception) -> str:
        if isinstance(error, HttpError):
            return str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted: {error.verify_message}; see tls_ca_file"
        words: tuple[tuple[type[Exception], str], ...] = (
            (TimeoutError, f"no whole page within {self._timeout:g} s"),
            (ConnectionRefusedError, f"nobody listens at {self._url.netloc}"),
            (ssl.SSLError, "it does not speak TLS with us"),
            (socket.gaierror, f"the name {self._url.hostname} is not known here"),
            (ConnectionError, "it ended the connection without an answer"),
        )
        known = next((text for kind, text in words if isinstance(error, kind)), None)
        return known or getattr(error, "strerror", None) or type(error).__name__


def _text(answer: Answer) -> str:
    encoding = answer.headers.get("content-encoding", "identity").lower()
    data = answer.body
    if encoding == "gzip":
        inflate = zlib.decompressobj(31)
        try:
            data = inflate.decompress(data, MAX_BYTES)
        except zlib.error:
            raise HttpError("the page is not gzip although it says so") from None
        if inflate.unconsumed_tail:
            raise HttpError(f"the page has more than {MAX_BYTES // 1024 // 1024} MiB")
        if not inflate.eof:
            raise HttpError("the connection ended before the page did")
    elif encoding != "identity":
        raise HttpError(f"the page is encoded as {encoding[:20]!r}")
    return data.decode(errors="replace")
