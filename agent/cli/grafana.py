"""Grafana's HTTP API, as far as boards need it: folders, and dashboards by their uid. Every failure is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2

from agent.errors import ConfigError, KvtideError
from agent.http_address import believed, shown_address
from agent.plain import plain

Board = dict[str, Any]

MAX_BYTES = 8 << 20  # of one answer
_SHOWN = 300  # characters of what a server says
_NOT_FOUND = 404
_TAKEN = (409, 412)  # what a folder that is there already is answered with, by Grafana's age
_WHY = {
    401: "the token is not valid there: --token-file, or KVTIDE_GRAFANA_TOKEN",
    403: "the token may not do that: its service account needs the role Editor",
    404: "there is no Grafana at this address; its path may be lacking",
    413: "what stands before it takes no bodies of this size",
}


class Grafana:
    """One Grafana at ``url``. ``timeout``: seconds for one answer. What is raised shows neither token nor password.

    Raises :class:`ConfigError` for what can't be asked, :class:`KvtideError` for what is answered.
    """

    def __init__(self, url: str, token: str, *, timeout: float = 10.0, ca_file: Path | None = None) -> None:
        self.shown = shown_address(
            url, "--url", "must be like https://grafana.example or http://127.0.0.1:3000/grafana"
        )
        tls = believed(ca_file)
        self._timeout = timeout
        headers = {"Accept": "application/json", "User-Agent": "kvtide", "Authorization": f"Bearer {token}"}
        try:
            self._http = httpx2.Client(base_url=url.rstrip("/") + "/", timeout=timeout, headers=headers, verify=tls)
        except (httpx2.InvalidURL, ValueError) as error:
            raise ConfigError(f"--url: {self.shown}: {error}") from None

    def __enter__(self) -> Grafana:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def board(self, uid: str) -> tuple[Board, str] | None:
        """Return a board as it is there, and the uid of its folder; None where there is none."""
        found = self._ask("GET", f"api/dashboards/uid/{quote(uid, safe='')}", "reading a board", missing=True)
        if found is None:
            return None
        board, meta = found.get("dashboard"), found.get("meta")
        if not isinstance(board, dict) or not isinstance(meta, dict):
            raise KvtideError(f"{self.shown}: no answer of a Grafana")
        return board, str(meta.get("folderUid") or "")

    def has_folder(self, uid: str) -> bool:
        """Whether there is a folder of this uid."""
        return self._ask("GET", f"api/folders/{quote(uid, safe='')}", "reading a folder", missing=True) is not None

    def make_folder(self, uid: str, title: str) -> None:
        """Make a folder; somebody else's at the same moment will do."""
        body = {"uid": uid, "title": title}
        status, found = self._send("POST", "api/folders", body)
        if status in _TAKEN:
            if self.has_folder(uid):
                return
            raise KvtideError(
                f"{self.shown}: a folder is called {plain(title)} there by another uid: give it by --folder"
            )
        self._judge(status, found, f"making folder {plain(title)}")

    def save(self, board: Board, folder: str, message: str) -> str:
        """Save a board over what is there; return its address there."""
        body = {"dashboard": {**board, "id": None}, "folderUid": folder, "message": message, "overwrite": True}
        saved = self._ask("POST", "api/dashboards/db", f"saving {board['uid']}", body)
        if saved is None or saved.get("status") != "success":
            raise KvtideError(f"{self.shown}: saving {board['uid']}: it does not say that it was saved")
        return f"{self.shown}/d/{board['uid']}"

    def _ask(
        self, method: str, path: str, what: str, body: dict[str, Any] | None = None, *, missing: bool = False
    ) -> dict[str, Any] | None:
        """Return what is answered. ``missing``: None for 404, where Grafana itself says so."""
        status, found = self._send(method, path, body)
        if missing and status == _NOT_FOUND and "message" in found:
            return None
        self._judge(status, found, what)
        return found

    def _judge(self, status: int, found: dict[str, Any], what: str) -> None:
        if status == httpx2.codes.OK:
            return
        said = plain(str(found.get("message") or ""), _SHOWN)
        why = "; ".join(part for part in (said, _WHY.get(status, "")) if part)
        raise KvtideError(f"{self.shown}: {what}: {why or 'it does not say why'} (HTTP {status})")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Return the status and the body, empty where it is no JSON of Grafana's and the status says enough."""
        try:
            with self._http.stream(method, path, json=body) as response:
                if response.is_redirect:
                    where = plain(response.headers.get("location", "").partition("?")[0], 100)
                    raise KvtideError(f"{self.shown}: it sends us to {where}: give that URL, if it is no login")
                content = bytearray()
                for piece in response.iter_bytes():
                    content += piece
                    if len(content) > MAX_BYTES:
                        raise KvtideError(f"{self.shown}: an answer of more than {MAX_BYTES >> 20} MiB")
                status = response.status_code
        except httpx2.TimeoutException:
            raise KvtideError(f"{self.shown}: no answer within {self._timeout:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            text = plain(str(error) or type(error).__name__, _SHOWN)
            trust = "; --ca-file names certificates to trust" if "CERTIFICATE_VERIFY" in text else ""
            raise KvtideError(f"{self.shown}: no answer ({text}{trust})") from None
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return status, found
        if status == httpx2.codes.OK:
            raise KvtideError(f"{self.shown}: no answer of a Grafana: is something else there, such as a login page?")
        return status, {}


def same(ours: Any, theirs: Any) -> bool:
    """Whether all that ``ours`` says is in ``theirs``: a Grafana adds what it takes for granted, and drops nulls."""
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and all(same(value, theirs.get(name)) for name, value in ours.items())
    if isinstance(ours, list):
        return (
            isinstance(theirs, list)
            and len(ours) == len(theirs)
            and all(same(here, there) for here, there in zip(ours, theirs, strict=True))
        )
    return bool(ours == theirs)
