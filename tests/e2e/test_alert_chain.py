"""From a real engine's leak to a person and back: engine, agent, Prometheus, Alertmanager, webhook; all of them real.

The fast profile and the rules are those that are shipped, and so is the minute that a leak must last before it pages.
Only what Alertmanager waits between two words of one group is shorter, so that the good news comes soon.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

from kvtide_chaos.kv_blocks import arm, wait_planted

from tests.bed.agent import KVTIDE, PATIENCE_SECONDS
from tests.bed.alerting import of, routing, scraping
from tests.bed.alertmanager import AlertmanagerServer, Notification, Webhook
from tests.bed.load import LoadPlan, Tenant, run_load
from tests.bed.prometheus import PrometheusServer
from tests.e2e.conftest import BLOCKS, Rig

CAPACITY = BLOCKS - 1  # vLLM keeps one block for itself
LEAKED = 45  # 15 %
PAGES = CAPACITY // 10  # more than so many do
HOLD_SECONDS = 60.0  # what the rule itself waits
BOUND_SECONDS = 180.0  # beside that; generous: the figure itself is printed
LEARNS_SECONDS = 6.0  # until Prometheus knows of Alertmanager
LOAD = LoadPlan(requests=80, seconds=600.0, concurrency=8, tenants=(Tenant("acme", prompt=(100, 400)),), seed=5)


def reclaim(rig: Rig) -> dict[str, Any]:
    """What the runbook says: leaked blocks are given back, by a person's order.

    Empty where it is refused: an engine that stands still for seconds, as on a busy machine, is given none.
    """
    label = rig.agent.engine()["engine"]
    command = [str(KVTIDE), "actions", "order", "reclaim_orphans", label, "age_seconds=1", "--json"]
    ran = subprocess.run(
        [*command, "--socket", str(rig.agent.socket)], check=False, capture_output=True, text=True, timeout=120
    )
    answer: dict[str, Any] = json.loads(ran.stdout) if ran.returncode == 0 else {}
    return answer


def orphaned(rig: Rig) -> int | None:
    pool = rig.agent.pool()
    return None if pool is None or not pool["exact"] else int(pool["orphaned"])


def leaked(rig: Rig) -> int:
    pool = rig.agent.pool()
    return 0 if pool is None else int(pool["orphaned"] or 0)


def leak_of(notification: Notification) -> list[dict[str, Any]]:
    return [each for each in notification.body["alerts"] if each["labels"]["condition"] == "kv_orphan"]


def wait_told(hook: Webhook, status: str, seconds: float) -> Notification:
    """Wait for a word on the leak to whoever is on call now."""
    deadline = time.monotonic() + seconds
    while True:
        for each in of(hook.got, "kvtide-now", status):
            if leak_of(each):
                return each
        assert time.monotonic() < deadline, [(each.path, each.body["status"]) for each in hook.got]
        time.sleep(0.05)


def test_a_leak_reaches_a_person_and_so_does_its_end(rig: Rig, tmp_path: Path) -> None:
    if orphaned(rig) != 0:  # what another test has left
        rig.agent.wait(lambda: reclaim(rig))
        rig.agent.wait(lambda: orphaned(rig) == 0)
    address = rig.agent.url.removeprefix("http://")
    with (
        Webhook() as hook,
        AlertmanagerServer(tmp_path / "alertmanager", routing(hook.url, 5.0)) as manager,
        PrometheusServer(tmp_path / "prometheus", targets=[address], more=scraping(manager.address)) as watched,
    ):
        watched.wait_scraped()
        time.sleep(LEARNS_SECONDS)
        assert of(hook.got, "kvtide-now", "firing") == [], "nothing is wrong yet"

        arm(rig.leaks, LEAKED, LEAKED)
        load = threading.Thread(target=lambda: asyncio.run(run_load(rig.engine.url, LOAD)))
        load.start()
        rig.agent.wait(lambda: leaked(rig) > PAGES)
        breach = time.monotonic()
        told = wait_told(hook, "firing", HOLD_SECONDS + BOUND_SECONDS)
        wait_planted(rig.leaks, PATIENCE_SECONDS)
        load.join()

        (alert,) = leak_of(told)
        labels, notes = alert["labels"], alert["annotations"]
        for each in (notes["summary"], notes["description"], notes["runbook_url"], notes["dashboard"]):
            print(each)
        engine = rig.agent.engine()["engine"]
        assert (labels["engine"], labels["gpu"], labels["instance"]) == (engine, "none", address)
        assert (labels["severity"], labels["respond_within"], labels["page"]) == ("emergency", "now", "yes")
        share = notes["description"].partition(" ")[0]
        assert share in {f"{100 * number / CAPACITY:.4g}%" for number in range(PAGES + 1, LEAKED + 1)}
        assert notes["summary"] == f"{engine}: {share} of the KV pool has leaked"
        assert f"of the KV blocks of {engine} on {address} are held by no request" in notes["description"]
        assert notes["runbook_url"].endswith("docs/runbooks/kv_orphan.md")
        assert notes["dashboard"] == f"/d/kvtide-leaks?var-instance={quote_plus(address)}&var-engine={engine}"
        assert not re.search(r"\{\{|<no value>|%!", json.dumps(told.body)), "a template that was not filled in"

        rig.agent.wait(lambda: rig.agent.engine()["running"] == 0)
        repaired = time.monotonic()
        rig.agent.wait(lambda: reclaim(rig).get("phase") == "done")
        over = wait_told(hook, "resolved", BOUND_SECONDS)
        assert orphaned(rig) == 0
        print(
            f"a tenth of the pool leaked to webhook {told.at - breach:.1f} s, of which the rule itself waits "
            f"{HOLD_SECONDS:g} s; repair to webhook {over.at - repaired:.1f} s"
        )
