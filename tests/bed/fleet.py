"""Pages of many nodes from one process: the real exporter's text of one busy node, with numbers that move."""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from exporters.catalogue import CATALOGUE
from exporters.text import CONTENT_TYPE

TYPES = {metric.name: metric.type for metric in CATALOGUE}
MOVING = 0.25  # of the gauges: the rest say the same for minutes
JITTER = 0.02


class _Server(ThreadingHTTPServer):
    """Says nothing of a scraper that has not waited: Prometheus counts that itself."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


class Fleet:
    """Serves ``nodes`` pages under ``/NUMBER/metrics``, each as ``text`` says; ``replaced`` has the text of some."""

    def __init__(self, nodes: int, text: str, replaced: Mapping[int, str] | None = None) -> None:
        chance = random.Random(0)
        usual = _lines(text, chance)
        others = {number: _lines(own, chance) for number, own in (replaced or {}).items()}
        self._pages = [_Page(others.get(number, usual), number) for number in range(nodes)]
        pages, gone = self._pages, threading.Event()
        self._gone = gone

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if gone.is_set():  # a connection that was there before outlives the server
                    self.close_connection = True
                    return
                body = pages[int(self.path.split("/")[1])].text().encode()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def targets(self) -> list[dict[str, Any]]:
        """Return Prometheus's static configuration of all of them."""
        address = f"127.0.0.1:{self._server.server_address[1]}"
        return [
            {"targets": [address], "labels": {"instance": f"n{number}", "__metrics_path__": f"/{number}/metrics"}}
            for number in range(len(self._pages))
        ]

    def close(self) -> None:
        """Let them be gone."""
        self._gone.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a page: what stays, and how its number moves: by ``step`` a scrape, or by ``jitter`` of itself."""

    lead: str
    value: float | None = None
    step: int = 0
    jitter: bool = False


def _lines(text: str, chance: random.Random) -> list[_Line]:
    return [_line(each, chance) for each in text.splitlines()]


def _line(text: str, chance: random.Random) -> _Line:
    if text.startswith("#"):
        return _Line(text)
    lead, _, number = text.rpartition(" ")
    kind = TYPES.get(lead.partition("{")[0], "histogram")
    if kind == "gauge":
        return _Line(lead, float(number), jitter=float(number) > 1 and chance.random() < MOVING)
    # What a histogram gets falls into its first bucket: each of its counts grows by one.
    return _Line(lead, float(number), step=1 if kind == "histogram" else chance.randrange(50))


class _Page:
    """One node's; ``number`` tells it from the others."""

    def __init__(self, lines: Sequence[_Line], number: int) -> None:
        self._lines, self._chance, self._scrapes = lines, random.Random(number), 0

    def text(self) -> str:
        """Return it as it is now."""
        self._scrapes += 1
        by, said = self._chance.uniform(1 - JITTER, 1 + JITTER), []
        for line in self._lines:
            if line.value is None:
                said.append(line.lead)
            elif line.jitter:
                said.append(f"{line.lead} {line.value * by!r}")
            else:
                said.append(f"{line.lead} {line.value + line.step * self._scrapes!r}")
        return "\n".join(said) + "\n"
