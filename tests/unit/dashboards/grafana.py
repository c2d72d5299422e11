"""A server that keeps folders and dashboards as Grafana's documented HTTP API does, on a loopback port.

What it answers is by https://grafana.com/docs/grafana/latest/developers/http_api (dashboard, folder).
"""

from __future__ import annotations

import json
import ssl
import time
from typing import Any

from tests.unit.stub_server import Answer, Asked, StubServer

TOKEN = "glsa_told-to-nobody"  # noqa: S105 - of nothing


class Grafana(StubServer):
    """Keeps ``folders`` by uid and ``boards`` by uid with their folder; ``asked`` is what it was asked to do.

    ``wrong``: (method, path) -> what is answered instead. ``slow``: seconds before each answer. ``saved``: what it was
    sent for each board.
    """

    def __init__(self, path: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.folders: dict[str, str] = {}
        self.boards: dict[str, tuple[dict[str, Any], str]] = {}
        self.saved: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.wrong: dict[tuple[str, str], tuple[int, Any, dict[str, str]]] = {}
        self.slow = 0.0
        self._path = path
        super().__init__(self._answer, tls, path)

    def _answer(self, asked: Asked) -> Answer:
        time.sleep(self.slow)
        body = json.loads(asked.body) if asked.body else {}
        status, content, headers = self._judge(asked.method, asked.path, asked.headers, body)
        return Answer(content, status, headers)

    def _judge(self, method: str, path: str, headers: Any, body: Any) -> tuple[int, Any, dict[str, str]]:
        if not path.startswith(f"{self._path}/api/"):
            return 404, b"<html>nothing here</html>", {}
        asked = (method, path.removeprefix(self._path))
        self.asked.append(asked)
        if asked in self.wrong:
            return self.wrong[asked]
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, {"message": "Invalid API key", "messageId": "api-key.invalid", "statusCode": 401}, {}
        status, content = 404, {"message": "Not found"}
        match method, asked[1].split("/")[2:]:
            case "GET", ["folders", uid]:
                status, content = self._folder(uid)
            case "POST", ["folders"]:
                status, content = self._make(body["uid"], body["title"])
            case "GET", ["dashboards", "uid", uid]:
                status, content = self._board(uid)
            case "POST", ["dashboards", "db"]:
                status, content = self._save(body)
        return status, content, {}

    def _folder(self, uid: str) -> tuple[int, Any]:
        if uid not in self.folders:
            return 404, {"message": "folder not found"}
        return 200, {"uid": uid, "title": self.folders[uid]}

    def _make(self, uid: str, title: str) -> tuple[int, Any]:
        if uid in self.folders or title in self.folders.values():
            return 409, {"message": "a folder with the same name already exists"}
        self.folders[uid] = title
        return 200, {"uid": uid, "title": title, "version": 1}

    def _board(self, uid: str) -> tuple[int, Any]:
        if uid not in self.boards:
            return 404, {"message": "Dashboard not found"}
        board, folder = self.boards[uid]
        return 200, {"dashboard": board, "meta": {"folderUid": folder, "slug": uid}}

    def _save(self, body: Any) -> tuple[int, Any]:
        board, folder = body["dashboard"], body.get("folderUid", "")
        if folder and folder not in self.folders:
            return 400, {"message": "folder not found"}
        uid = board["uid"]
        self.saved[uid] = body
        old = self.boards.get(uid)
        if old is not None and not body.get("overwrite"):
            return 412, {"message": "A dashboard with the same uid already exists", "status": "name-exists"}
        version = 1 if old is None else old[0]["version"] + 1
        # As Grafana does: numbers of its own, and nulls are gone.
        self.boards[uid] = (_stored({**board, "id": len(self.boards) + 1, "version": version}), folder)
        return 200, {"uid": uid, "status": "success", "version": version, "url": f"/d/{uid}"}


def _stored(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stored(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_stored(inner) for inner in value]
    return value
