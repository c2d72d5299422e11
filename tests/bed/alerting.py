"""What alerting tests share: pages on which faults begin, what is shipped for both programs, what was heard."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from alerts import alertmanager, prometheus
from alerts.build import BUILT
from exporters import catalogue as c
from exporters.catalogue import Metric
from exporters.collectors.base import Sample
from exporters.text import Text
from tests.bed.alertmanager import Notification


class Node:
    """A page of metrics on which conditions begin one after another, from :meth:`breach` until :meth:`end`."""

    def __init__(self, always: Sequence[Sample], faults: Sequence[Sequence[Sample]], spread: float) -> None:
        self._always, self._faults, self._spread = always, faults, spread
        self._began: float | None = None
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = Text().of([*node.now()]).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def breach(self) -> float:
        """Let the first condition begin; return when."""
        self._began = time.monotonic()
        return self._began

    def end(self) -> None:
        """Let all be well."""
        self._began = None

    def now(self) -> Iterator[Sample]:
        """Yield what is on the page."""
        yield from self._always
        if (began := self._began) is None:
            return
        so_far = (time.monotonic() - began) / self._spread
        for number, fault in enumerate(self._faults):
            if so_far * len(self._faults) >= number:
                yield from fault


@contextmanager
def served(*nodes: Node) -> Iterator[None]:
    """Serve their pages while the block runs."""
    threads = [threading.Thread(target=node.server.serve_forever, daemon=True) for node in nodes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for node in nodes:
            node.server.shutdown()
            node.server.server_close()
        for thread in threads:
            thread.join()


def sample(metric: Metric, value: float, **labels: str) -> Sample:
    """Return a sample of the catalogue; labels that are not given are empty."""
    return Sample(metric, tuple(labels.get(name, "") for name in metric.labels), value)


def page(kind: str, scope: str, **about: str) -> Sample:
    """Return a verdict that pages."""
    return sample(c.VERDICT, 1, scope=scope, kind=kind, phase="confirmed", tier="page", **about)


def routing(url: str, group_seconds: float) -> dict[str, Any]:
    """What is shipped, with a webhook for each receiver and ``group_seconds`` between two words of one group."""
    config = alertmanager.config()
    config["route"]["group_interval"] = f"{group_seconds:g}s"
    for receiver in config["receivers"]:
        receiver["webhook_configs"] = [{"url": f"{url}/{receiver['name']}", "send_resolved": True}]
    return config


def scraping(alerts_to: str) -> dict[str, Any]:
    """The fast profile that is shipped, without its targets."""
    config = prometheus.config("1s")
    del config["scrape_configs"]
    config["rule_files"] = [str(BUILT / name) for name in config["rule_files"]]
    config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alerts_to]
    return config


def of(got: Sequence[Notification], receiver: str, status: str) -> list[Notification]:
    """Return what a receiver was told: ``status`` is firing or resolved."""
    return [each for each in got if each.path == receiver and each.body["status"] == status]


def nodes_of(notifications: Sequence[Notification]) -> list[str]:
    """Return the nodes that they are about."""
    return sorted(each.body["groupLabels"]["instance"] for each in notifications)
