"""How long it takes from a breach to a person's pager: the real Prometheus and the real Alertmanager, as shipped.

A breach is the moment at which an agent's page shows a verdict that pages at once. From there: the next scrape and the
next look at the rules, a second each in the fast profile; Alertmanager's ``group_wait``, five seconds in which what
belongs to the same incident comes together; the webhook. Nodes breach one after another, at any moment of a second.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.rows import Row, bootstrap, quantile
from exporters import catalogue as c
from tests.bed.alerting import Node, nodes_of, of, page, routing, sample, scraping, served
from tests.bed.alertmanager import AlertmanagerServer, Webhook
from tests.bed.prometheus import PrometheusServer

BUDGET_SECONDS = 10.0
ROUNDS, QUICK_ROUNDS = 30, 8
APART_SECONDS = (0.2, 1.2)
LEARNS_SECONDS = 6.0  # until Prometheus knows of Alertmanager
PATIENCE = 60.0


def _measure(rounds: int) -> list[float]:
    chance = random.Random(0)
    well = [sample(c.KV_CAPACITY, 1000, engine="m")]
    nodes = [Node(well, [[page("kv_over_freed", "engine", engine="m")]], 1.0) for _ in range(rounds)]
    with tempfile.TemporaryDirectory() as name, served(*nodes), Webhook() as hook:
        place = Path(name)
        with (
            AlertmanagerServer(place / "alertmanager", routing(hook.url, 300.0)) as manager,
            PrometheusServer(
                place / "prometheus", targets=[node.address for node in nodes], more=scraping(manager.address)
            ) as watched,
        ):
            watched.wait_scraped()
            time.sleep(LEARNS_SECONDS)
            began = {}
            for node in nodes:
                began[node.address] = node.breach()
                time.sleep(chance.uniform(*APART_SECONDS))
            deadline = time.monotonic() + PATIENCE
            while len(told := of(hook.got, "kvtide-now", "firing")) < rounds:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{len(told)} of {rounds} breaches were told")
                time.sleep(0.1)
            return [each.at - began[instance] for each in told for instance in nodes_of([each])]


def run(quick: bool) -> list[Row]:
    """Return p99 and median of the way from a breach to the webhook."""
    seconds = _measure(QUICK_ROUNDS if quick else ROUNDS)

    def high(values: Sequence[float]) -> float:
        return quantile(sorted(values), 0.99)

    return [
        Row("breach_to_webhook_p99", high(seconds), "seconds", BUDGET_SECONDS, bootstrap(seconds, high)),
        Row(
            "breach_to_webhook_median",
            statistics.median(seconds),
            "seconds",
            interval=bootstrap(seconds, statistics.median),
        ),
    ]
