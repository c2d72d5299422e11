"""An incident storm through the real Prometheus and the real Alertmanager: one notification for each node.

Fifty conditions begin on one node within 120 s and one on another. Here it is played ten times as fast, and so is
Alertmanager's ``group_interval``; ``group_wait``, for which people wait, is what is shipped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from alerts import alertmanager, prometheus
from alerts.build import BUILT
from exporters import catalogue as c
from exporters.catalogue import Metric
from exporters.collectors.base import Sample
from exporters.text import Text
from tests.bed.alertmanager import AlertmanagerServer, Notification, Webhook
from tests.bed.prometheus import PrometheusServer

FASTER = 10
STORM_SECONDS = 120 / FASTER
GROUP_SECONDS = 300 / FASTER
WAIT_SECONDS = 75.0
BOUND_SECONDS = 30.0  # generous: the figure itself is printed
ENGINES = 8


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
    return Sample(metric, tuple(labels.get(name, "") for name in metric.labels), value)


def page(kind: str, scope: str, **about: str) -> Sample:
    return sample(c.VERDICT, 1, scope=scope, kind=kind, phase="confirmed", tier="page", **about)


def conditions() -> list[list[Sample]]:
    """Fifty faults that page, of eight engines and GPUs, and of the node."""
    found: list[list[Sample]] = [[sample(c.BREAKER_OPEN, 1)], [sample(c.ENGINE_RESTARTS, 5, engine="m0")]]
    for number in range(ENGINES):
        engine, gpu = f"m{number}", str(number)
        found += [
            [page("kv_over_freed", "engine", engine=engine)],
            [page("oom", "process", engine=engine, process="worker/0")],
            [page("host_growth", "host", engine=engine, process="core/0")],
            [page("gpu_lost", "gpu", gpu=gpu)],
            [page("device_growth", "gpu", gpu=gpu)],
            [
                page("kv_delayed_free", "engine", engine=engine),
                sample(c.DELAYED_BLOCKS, 300, engine=engine, peer="p", direction="send"),
            ],
        ]
    return found


def healthy() -> list[Sample]:
    return [
        *(sample(c.GPU_USE, 0.93, gpu=str(number)) for number in range(ENGINES)),
        *(sample(c.KV_CAPACITY, 1000, engine=f"m{number}") for number in range(ENGINES)),
    ]


def routing(url: str) -> dict[str, Any]:
    """What is shipped, with a webhook for each receiver, ten times as fast between two words of one group."""
    config = alertmanager.config()
    config["route"]["group_interval"] = f"{GROUP_SECONDS:g}s"
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
    return [each for each in got if each.path == receiver and each.body["status"] == status]


def nodes_of(notifications: Sequence[Notification]) -> list[str]:
    return sorted(each.body["groupLabels"]["instance"] for each in notifications)


def test_a_storm_is_one_notification_for_each_node(tmp_path: Path) -> None:
    faults = conditions()
    assert len(faults) == 50
    loud, other = Node(healthy(), faults, STORM_SECONDS), Node(healthy(), faults[2:3], STORM_SECONDS)
    both = sorted([loud.address, other.address])
    with (
        served(loud, other),
        Webhook() as hook,
        AlertmanagerServer(tmp_path / "alertmanager", routing(hook.url)) as manager,
        PrometheusServer(tmp_path / "prometheus", targets=both, more=scraping(manager.address)) as watched,
    ):
        watched.wait_scraped()
        time.sleep(2.0)  # Prometheus has learned of Alertmanager by then
        quiet = [each for each in hook.got if each.path != "kvtide-watchdog"]
        assert quiet == [], "nothing is wrong yet"

        breach = loud.breach()
        time.sleep(STORM_SECONDS / 2)
        other.breach()
        time.sleep(STORM_SECONDS / 2 + 2.0)
        loud.end()
        other.end()
        deadline = time.monotonic() + WAIT_SECONDS
        while len(of(hook.got, "kvtide-now", "resolved")) < 2 or not of(hook.got, "kvtide-soon", "resolved"):
            assert time.monotonic() < deadline, [(each.path, each.body["status"]) for each in hook.got]
            time.sleep(0.1)

        firing = of(hook.got, "kvtide-now", "firing")
        first = firing[0].at - breach
        told = {each.body["groupLabels"]["instance"]: len(each.body["alerts"]) for each in firing}
        print(f"breach to webhook {first:.1f} s; conditions in the first word, by node: {sorted(told.values())}")
        assert nodes_of(firing) == both, "one for each node, however many conditions"
        assert nodes_of(of(hook.got, "kvtide-now", "resolved")) == both
        assert nodes_of(of(hook.got, "kvtide-soon", "firing")) == [loud.address]
        assert of(hook.got, "kvtide-ticket", "firing") == [], "no ticket beside its page"
        over = next(
            each
            for each in of(hook.got, "kvtide-now", "resolved")
            if each.body["groupLabels"]["instance"] == loud.address
        )
        assert {each["status"] for each in over.body["alerts"]} == {"resolved"}
        assert first < BOUND_SECONDS
