"""The part of Kubernetes' API that the balancer uses, as a small HTTP server: Leases, a disruption budget, pods.

Leases have versions as the real ones do: who writes over another's is refused.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LEASES = "/apis/coordination.k8s.io/v1/namespaces/llm/leases"
BUDGET = "/apis/policy/v1/namespaces/llm/poddisruptionbudgets/engines"
PODS = "/api/v1/namespaces/llm/pods/"
TOKEN = "the-token"  # noqa: S105


class KubeApi:
    """``before_write`` is called once before a Lease is written, to write it first; ``skew``: of its clock, seconds."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.allowed: int | None = None
        self.conditions: dict[str, list[dict[str, Any]]] = {}
        self.patches = 0
        self.conflicts = 0
        self.before_write: Callable[[str], None] | None = None
        self.status = 0
        self.wall: Callable[[], float] | None = None
        self._version = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def put(self, name: str, lease: dict[str, Any]) -> dict[str, Any]:
        """Write a Lease, whoever wrote it before."""
        self._version += 1
        lease["metadata"] = lease.get("metadata", {}) | {"name": name, "resourceVersion": str(self._version)}
        self.leases[name] = json.loads(json.dumps(lease))
        return self.leases[name]

    def act(self, method: str, path: str, kind: str, body: Any) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(path)
        name = parts.path.removeprefix(LEASES).strip("/")
        with self._lock:
            if self.status:
                return self.status, {"kind": "Status", "message": "the server is not well"}
            if parts.path == BUDGET and self.allowed is not None:
                return 200, {"kind": "PodDisruptionBudget", "status": {"disruptionsAllowed": self.allowed}}
            if parts.path.startswith(PODS) and method == "PATCH":
                assert kind == "application/strategic-merge-patch+json"
                return self._patched(parts.path.removeprefix(PODS).removesuffix("/status"), body)
            if parts.path == LEASES and method == "GET":
                key, _, value = parse_qs(parts.query)["labelSelector"][0].partition("=")
                items = [it for it in self.leases.values() if it["metadata"].get("labels", {}).get(key) == value]
                return 200, {"kind": "LeaseList", "items": items}
            if parts.path.startswith(LEASES):
                return self._lease(method, name or body["metadata"]["name"], body)
            return 404, {"kind": "Status", "message": f"{parts.path} not found"}

    def _lease(self, method: str, name: str, body: Any) -> tuple[int, dict[str, Any]]:
        meddle, there = self.before_write, self.leases.get(name)
        if method != "GET" and meddle is not None:
            self.before_write = None
            meddle(name)
            there = self.leases.get(name)
        if method == "GET":
            return (404, {"message": "not found"}) if there is None else (200, there)
        version = body["metadata"].get("resourceVersion")
        if (method == "POST") != (there is None) or (there and there["metadata"]["resourceVersion"] != version):
            self.conflicts += 1
            return 409, {"message": "the object has been modified"}
        return 200, self.put(name, body)

    def _patched(self, pod: str, body: Any) -> tuple[int, dict[str, Any]]:
        self.patches += 1
        if pod not in self.conditions:
            return 404, {"message": f'pods "{pod}" not found'}
        new = body["status"]["conditions"]
        kept = [each for each in self.conditions[pod] if each["type"] not in {it["type"] for it in new}]
        self.conditions[pod] = kept + new
        return 200, {"kind": "Pod"}

    def _handler(api) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                status, found = 401, {"message": "Unauthorized"}
                if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                    status, found = api.act(self.command, self.path, self.headers.get("Content-Type", ""), body)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = answer  # noqa: N815

            def date_time_string(self, timestamp: float | None = None) -> str:
                if timestamp is None and api.wall is not None:
                    timestamp = api.wall()
                return super().date_time_string(timestamp)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        return Handler
