"""A server that answers range queries as a test wants, on a loopback port."""

from __future__ import annotations

import bisect
import json
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs

from tests.bed.prometheus import Sample

LOOK_BACK = 300.0  # a Prometheus carries the last value on for so long


class Question(NamedTuple):
    """One range query."""

    query: str
    start: float
    end: float
    step: float

    @property
    def points(self) -> int:
        return int((self.end - self.start) / self.step) + 1


class Answer(NamedTuple):
    """What is sent back. ``body`` is JSON unless it is bytes."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


class StubPrometheus:
    """Answers with ``answer`` and keeps what it was asked, and with which headers."""

    def __init__(self, answer: Callable[[Question], Answer], tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Question] = []
        self.headers: list[dict[str, str]] = []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                question = Question(form["query"], float(form["start"]), float(form["end"]), float(form["step"]))
                stub.asked.append(question)
                stub.headers.append(dict(self.headers))
                content, status, headers = answer(question)
                content = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, text in {"Content-Length": str(len(content)), **headers}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        port = self._server.server_address[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def matrix(*series: dict[str, Any]) -> Answer:
    """Return a good answer."""
    return Answer({"status": "success", "data": {"resultType": "matrix", "result": list(series)}})


def of_samples(samples: Iterable[Sample]) -> Callable[[Question], Answer]:
    """Return what a Prometheus without marks of what vanished would say of ``samples``, for the questions we ask."""
    kept: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for name, labels, value, at in samples:
        kept.setdefault(tuple(sorted({**labels, "__name__": name}.items())), []).append((at, value))

    def answer(question: Question) -> Answer:
        found = re.search(r'__name__=~"([^"]*)"', question.query)
        assert found is not None
        by = re.match(r"max by \(([^)]*)\)", question.query)
        series: dict[tuple[tuple[str, str], ...], list[list[Any]]] = {}
        for labels, points in kept.items():
            known = dict(labels)
            if not re.fullmatch(found[1].replace("\\\\", "\\"), known["__name__"]):
                continue
            wanted = by[1].split(",") if by else list(known)
            key = tuple((label, known[label]) for label in wanted if label in known)
            for number in range(question.points):
                at = question.start + number * question.step
                last = bisect.bisect_right(points, at, key=lambda point: point[0]) - 1
                if last >= 0 and at - LOOK_BACK < points[last][0]:
                    series.setdefault(key, []).append([at, repr(points[last][0 if by else 1])])
        return matrix(*({"metric": dict(key), "values": values} for key, values in series.items()))

    return answer
