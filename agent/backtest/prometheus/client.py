"""Range queries over HTTP: bounded in time and size, and every failure is one line."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import msgspec

from agent.backtest.prometheus.errors import PrometheusError, TooLargeError
from agent.errors import ConfigError
from agent.http_address import believed, shown_address
from agent.plain import plain

MAX_BYTES = 16 << 20  # of one answer, unpacked
MAX_POINTS = 11_000  # of one series in one answer: Prometheus refuses more
RETRIES = 2  # of connecting
_SHOWN = 300  # characters of what a server says
_STATUS = {
    401: "it wants a token: see --token-file",
    403: "it does not let us: see --token-file",
    404: "there is no Prometheus at this address; its path may be lacking",
    413: "the question is too long for what stands before it",
    503: "it is overloaded, or a query took too long: a shorter --range or a longer --step may do",
    504: "what stands before it has waited in vain: a shorter --range or a longer --step may do",
}


class Series(msgspec.Struct, frozen=True):
    """One series: labels, with ``__name__`` where it has one, and points: Unix seconds and a number as text."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""


_answers = msgspec.json.Decoder(_Answer)
_matrices = msgspec.json.Decoder(list[Series])


class Prometheus:
    """One Prometheus, or what speaks as it does. ``timeout``: seconds for one answer, to its end.

    Raises :class:`ConfigError` for what can't be asked, :class:`PrometheusError` for what is answered; neither shows a
    password that the URL holds.
    """

    def __init__(
        self, url: str, *, timeout: float = 60.0, ca_file: Path | None = None, token_file: Path | None = None
    ) -> None:
        self.shown = shown_address(
            url, "--from", "a Prometheus must be like http://127.0.0.1:9090 or https://host/path"
        )
        tls = believed(ca_file)
        self._timeout = timeout
        headers = {"Accept": "application/json", "User-Agent": "kvtide"}
        if token_file is not None:
            headers["Authorization"] = f"Bearer {_token(token_file)}"
        try:
            self._http = httpx2.Client(
                base_url=url.rstrip("/") + "/",
                timeout=timeout,
                headers=headers,
                transport=httpx2.HTTPTransport(verify=tls, retries=RETRIES),
            )
        except (httpx2.InvalidURL, ValueError) as error:
            raise ConfigError(f"--from: {self.shown}: {error}") from None

    def close(self) -> None:
        """End its connections."""
        self._http.close()

    def range(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """Return the series of ``query`` at ``start``, ``start + step``, ... up to ``end`` (Unix seconds).

        Raises :class:`TooLargeError` where the answer is larger than ``MAX_BYTES``.
        """
        form = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:.3f}"}
        status, body = self._post("api/v1/query_range", form)
        try:
            answer = _answers.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if status != 200:
                raise PrometheusError(f"{self.shown}: HTTP {status}{_why(status)}") from None
            html = b"<html" in body[:1000].lower() or b"<!doctype html" in body[:1000].lower()
            what = "a page for people (HTML), such as a login" if html else "no answer of a Prometheus"
            raise PrometheusError(f"{self.shown}: what came is {what}") from None
        if answer.status != "success" or answer.data is None:
            text = plain(f"{answer.error_type}: {answer.error}".strip(": ") or "it does not say why", _SHOWN)
            raise PrometheusError(f"{self.shown}: it refuses: {text}{_why(status)}")
        if answer.data.result_type != "matrix":
            raise PrometheusError(f"{self.shown}: what came is a {plain(answer.data.result_type, 40)}, not a matrix")
        try:
            return _matrices.decode(answer.data.result)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PrometheusError(f"{self.shown}: its series can't be read: {plain(str(error), _SHOWN)}") from None

    def _post(self, path: str, form: dict[str, str]) -> tuple[int, bytes]:
        """Return the status and the body."""
        try:
            with self._http.stream("POST", path, data=form) as response:
                if response.is_redirect:
                    where = plain(response.headers.get("location", "").partition("?")[0], 100)
                    raise PrometheusError(
                        f"{self.shown}: it sends us to {where}: give that URL, or a token if it is a login"
                    )
                body, deadline = bytearray(), time.monotonic() + self._timeout
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MAX_BYTES:
                        raise TooLargeError(f"{self.shown}: an answer of more than {MAX_BYTES >> 20} MiB")
                    if time.monotonic() > deadline:
                        raise PrometheusError(f"{self.shown}: no end of its answer within {self._timeout:.0f} s")
                return response.status_code, bytes(body)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            text = plain(str(error) or type(error).__name__, _SHOWN)
            raise PrometheusError(f"{self.shown}: no answer ({text})") from None


def _why(status: int) -> str:
    why = _STATUS.get(status, "")
    return f" ({why})" if why else ""


def _token(file: Path) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"--token-file {file}: {why}") from None
    if not token.isascii() or not token.isprintable() or not token:
        raise ConfigError(f"--token-file {file}: there is no token in it")
    return token
