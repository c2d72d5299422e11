"""An incident storm through the real Prometheus and the real Alertmanager: one notification for each node.

Fifty conditions begin on one node within 120 s and one on another. Here it is played ten times as fast, and so is
Alertmanager's ``group_interval``; ``group_wait``, for which people wait, is what is shipped.
"""

from __future__ import annotations

import time
from pathlib import Path

from exporters import catalogue as c
from exporters.collectors.base import Sample
from tests.bed.alerting import Node, nodes_of, of, page, routing, sample, scraping, served
from tests.bed.alertmanager import AlertmanagerServer, Webhook
from tests.bed.prometheus import PrometheusServer

FASTER = 10
STORM_SECONDS = 120 / FASTER
GROUP_SECONDS = 300 / FASTER
LEARNS_SECONDS = 6.0  # until Prometheus knows of Alertmanager
WAIT_SECONDS = 180.0
ENGINES = 8


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


def until(hook: Webhook, status: str) -> None:
    """Wait until both nodes' pages, and what is less urgent on one of them, have been told to be so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while len(of(hook.got, "kvtide-now", status)) < 2 or not of(hook.got, "kvtide-soon", status):
        assert time.monotonic() < deadline, [(each.path, each.body["status"]) for each in hook.got]
        time.sleep(0.1)


def test_a_storm_is_one_notification_for_each_node(tmp_path: Path) -> None:
    faults = conditions()
    assert len(faults) == 50
    loud, other = Node(healthy(), faults, STORM_SECONDS), Node(healthy(), faults[2:3], STORM_SECONDS)
    both = sorted([loud.address, other.address])
    with (
        served(loud, other),
        Webhook() as hook,
        AlertmanagerServer(tmp_path / "alertmanager", routing(hook.url, GROUP_SECONDS)) as manager,
        PrometheusServer(tmp_path / "prometheus", targets=both, more=scraping(manager.address)) as watched,
    ):
        watched.wait_scraped()
        time.sleep(LEARNS_SECONDS)
        quiet = [each for each in hook.got if each.path != "kvtide-watchdog"]
        assert quiet == [], "nothing is wrong yet"

        breach = loud.breach()
        time.sleep(STORM_SECONDS / 2)
        other.breach()
        time.sleep(STORM_SECONDS / 2 + 2.0)
        # All of it has been told: what ends before its group has waited is told to nobody.
        until(hook, "firing")
        loud.end()
        other.end()
        until(hook, "resolved")

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
