"""Every query of every board, asked of a real Prometheus that has scraped a real agent over a real engine that leaks.

What was planted must come back: the leak, of which only the plugin knows the size, the load's requests by tenant, the
scripted driver's bytes. A query that finds nothing must have a reason here, and a reason that is not needed is a fault.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kvtide_chaos.kv_blocks import arm, wait_planted

from tests.bed.boards import query, scene
from tests.bed.boards.query import Asker, Query, Window
from tests.bed.load import LoadReport, run_load

LOAD_SECONDS = 15.0
PATIENCE = 180.0
SETTLE_SECONDS = 4 * scene.SCRAPE_SECONDS
LEAST, MOST = 11, 37
WOULD = 'kvtide_actions_total{lever="reclaim_orphans",result="would"}'

NO_CONNECTOR = "no connector: nothing is transferred or pinned"
NO_DRAFTS = "nobody drafts"
ONE_POOL = "the model has one pool and no encoder"
HOURS = "needs hours"
MINUTES = "needs minutes"
PRESSURE = "whether somebody has to wait for memory is not planted"
DAY = "looks back in steps of five minutes, and there may be none in what was played"

ALLOCATORS = (
    'phase="confirmed",tier=~"warn|page",kind=~"allocator_fragmentation|allocator_growth|oom|sleep_residue|over_budget"'
)

# What has no data here, as it stands in a query without what variables choose, and why. It must have none.
ABSENT = {
    "kvtide_balancer_fleet_engines": "no coordinator",
    "kvtide_balancer_fleet_ejected_engines": "no coordinator",
    "kvtide_balancer_isolated == 1": "nobody is isolated",
    "kvtide_memory_failures_total": "no allocation fails",
    "kvtide_allocator_tag_mapped_bytes": "no sleep mode",
    "kvtide_speculation_drafted_tokens_total": NO_DRAFTS,
    "kvtide_speculation_interruption_ratio": NO_DRAFTS,
    "kvtide_kv_slow_growth_per_second": HOURS,
    "kvtide_kv_slow_unexplained_growth_per_second": HOURS,
    "kvtide_gpu_memory_slow_growth_per_second": HOURS,
    "kvtide_stalled_by": "tokens flow",
    "kvtide_kv_delayed_blocks": NO_CONNECTOR,
    "kvtide_kv_delayed_requests": NO_CONNECTOR,
    "kvtide_kv_delayed_oldest_seconds": NO_CONNECTOR,
    "kvtide_kv_delayed_lease_seconds": NO_CONNECTOR,
    "kvtide_kv_delayed_expired_blocks": NO_CONNECTOR,
    "kvtide_kv_pinned_references": NO_CONNECTOR,
    "kvtide_kv_pinned_oldest_seconds": NO_CONNECTOR,
    "kvtide_kv_pinned_limit_seconds": NO_CONNECTOR,
    "kvtide_pool_blocks_orphaned": ONE_POOL,
    "kvtide_pool_blocks_over_freed": ONE_POOL,
    "kvtide_encoder_entries_orphaned": ONE_POOL,
    'kvtide_waterfall_bytes{part="draft_model"}': NO_DRAFTS,
    'kvtide_waterfall_bytes{part="lora"}': "no adapters",
    'kvtide_waterfall_bytes{part="kv_unsplit"}': "the hooks tell what KV is",
    'kvtide_waterfall_bytes{part="encoder_cache"}': ONE_POOL,
    'kvtide_waterfall_bytes{part="untold"}': "each worker's allocator is read",
    "kvtide_gpu_xid_errors_total": "the driver reports no error",
    f"kvtide_verdict{{{ALLOCATORS}}}": "the allocators are well",
    "kvtide_tenant_session_median_seconds": "a session ends ten minutes after its last turn",
}
# What may have data here or not: it depends on how long this machine took.
SLOW = {
    "kvtide_kv_exhaustion_seconds": MINUTES,
    "kvtide_kv_growth_per_second": MINUTES,
    "kvtide_kv_unexplained_growth_per_second": MINUTES,
    "kvtide_kv_growth_acceleration_per_second": MINUTES,
    "kvtide_gpu_memory_growth_per_second": MINUTES,
    "kvtide_engine_memory_growth_per_second": MINUTES,
    "kvtide_engine_memory_limit_seconds": MINUTES,
    "kvtide_allocator_growth_per_second": MINUTES,
    "kvtide_scraped_kv_growth_per_minute_ratio": MINUTES,
    "[1d:5m]": DAY,
    "kvtide_cgroup_memory_stalled_seconds_total": "not every machine's cgroups tell it",
    'kvtide_verdict{phase="confirmed",tier=~"page"}': "what pages beside the leak is not planted",
    "fleet:kvtide_verdict_nodes:ratio": "whether the leak pages depends on how much of it the load let happen",
    'tier=~"warn|page",kind=~"tenant_surge': "whether a tenant surges is not planted",
    "kvtide_engine_up == 0": "on a busy machine an engine may fall silent",
    "kvtide_admission_wait_seconds_bucket": PRESSURE,
    "kvtide_memory_harm == 1": PRESSURE,
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What Prometheus has at the end, and what is true."""

    asker: Asker
    leaked: int
    load: LoadReport

    def panel(self, uid: str, title: str) -> list[dict[str, Any]]:
        """Return all series of a panel, each with its last value as ``last`` and its query's reference as ``ref``."""
        board = query.boards()[uid]
        values, options = self.asker.variables(board)
        found = []
        for panel, repeated in query.panels(board, options):
            if panel["title"] != title:
                continue
            for target, each in zip(panel["targets"], query.queries(board, panel), strict=True):
                found += [
                    {**series, "ref": target["refId"], "last": float(series["values"][-1][1])}
                    for series in self.asker.ask(each, {**values, **repeated})
                ]
        assert found, f"{uid} has no panel {title} that shows anything"
        return found

    def one(self, uid: str, title: str, ref: str = "A", **labels: str) -> float:
        """Return the last value of the only series of a query that has these labels."""
        found = [
            each["last"]
            for each in self.panel(uid, title)
            if each["ref"] == ref and labels.items() <= each["metric"].items()
        ]
        assert len(found) == 1, f"{uid}: {title} ({ref}) {labels}: {found}"
        return float(found[0])


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    """Play a node with a leak, let it come to rest, and look at it."""
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name, scene.playing(Path(name)) as playing:
        began = time.time()
        arm(playing.leaks, LEAST, MOST)
        report = asyncio.run(run_load(playing.engine.url, playing.load(LOAD_SECONDS)))
        assert report.failed == 0, report.errors
        planted = wait_planted(playing.leaks, PATIENCE)

        def at_rest() -> bool:
            (engine,) = (each for each in playing.agent.engines() if each["engine"] == scene.ENGINE)
            pool = engine["pool"]
            return pool is not None and engine["running"] == engine["waiting"] == 0 and pool["orphaned"] == planted.n

        playing.agent.wait(at_rest, PATIENCE)
        playing.agent.wait(lambda: WOULD in playing.agent.get("/metrics"), PATIENCE)
        playing.agent.wait(lambda: playing.order("active_cap", "requests=64"), PATIENCE)
        time.sleep(SETTLE_SECONDS)
        # Both pages have just been read, with nobody silent on them.
        playing.agent.wait(lambda: {each["phase"] for each in playing.agent.engines()} == {"live"}, PATIENCE)
        time.sleep(scene.SCRAPE_SECONDS)
        playing.prometheus.wait_scraped()
        window = Window(began, time.time(), scene.SCRAPE_SECONDS)
        yield Seen(Asker(playing.prometheus.url, window), planted.n, report)


def bare(expr: str) -> str:
    """Return an expression without what variables choose."""
    return re.sub(r'\w+=~"\$\w+",?', "", expr).replace(",}", "}").replace("{}", "")


def all_queries(asker: Asker) -> Iterator[tuple[Query, Mapping[str, str]]]:
    for board in query.boards().values():
        values, options = asker.variables(board)
        for panel, own in query.panels(board, options):
            for each in query.queries(board, panel):
                yield each, {**values, **own}
        for _, each in query.annotations(board):
            yield each, values


def test_every_query_finds_something_or_has_a_reason(seen: Seen) -> None:
    found: dict[str, str] = {}
    empty: dict[str, str] = {}
    for each, values in all_queries(seen.asker):
        # One that is repeated has to find something once.
        (found if seen.asker.ask(each, values) else empty)[bare(each.expr)] = each.where
    empty = {expr: where for expr, where in empty.items() if expr not in found}
    reasons = {**ABSENT, **SLOW}
    assert {where: expr for expr, where in empty.items() if not any(part in expr for part in reasons)} == {}
    assert [part for part in ABSENT if not any(part in expr for expr in empty)] == [], "not needed"
    assert [part for part in SLOW if not any(part in expr for expr in {**empty, **found})] == [], "not needed"
    assert [part for part in ABSENT if seen.asker.ask(Query("", part, False), {})] == [], "there is data after all"


def test_no_query_makes_up_a_number() -> None:
    for board in query.boards().values():
        for panel in board["panels"]:
            for each in query.queries(board, panel):
                assert not re.search(r"\bvector\s*\(", each.expr), each.where


def test_variables_offer_what_there_is(seen: Seen) -> None:
    engines = {scene.ENGINE, *scene.MORE_ENGINES, scene.HOOKLESS}
    for uid, board in query.boards().items():
        options = seen.asker.variables(board).options
        assert options["job"] == ["kvtide"], uid
        assert set(options["engine"]) == engines, uid
        assert len(options["instance"]) == 1, uid
        if "gpu" in options:
            assert options["gpu"] == ["0", "1", "2"]
        if "tenant" in options:
            assert {tenant.name for tenant in scene.TENANTS} <= set(options["tenant"])


def test_the_leak_on_the_boards_is_the_planted_one(seen: Seen) -> None:
    leaked, tiny = seen.leaked, {"engine": scene.ENGINE}
    assert seen.one("kvtide-engine", "KV tide of tiny", "D") == leaked
    assert seen.one("kvtide-engine", "KV tide of tiny", "A") == leaked, "at rest nothing else is held"
    assert seen.one("kvtide-engine", "KV tide of tiny", "E") == scene.CAPACITY
    assert seen.one("kvtide-engine", "KV tide of engine-0", "D") == 0
    assert seen.one("kvtide-engine", "Leaked", **tiny) == pytest.approx(leaked / scene.CAPACITY)
    assert seen.one("kvtide-leaks", "Leaked share of the pool", **tiny) == pytest.approx(leaked / scene.CAPACITY)
    by_tenant = {each["metric"]["tenant"]: each["last"] for each in seen.panel("kvtide-leaks", "By tenant")}
    assert by_tenant.keys() <= {tenant.name for tenant in scene.TENANTS}
    assert sum(by_tenant.values()) == leaked
    assert sum(each["last"] for each in seen.panel("kvtide-leaks", "By blame") if each["ref"] == "A") == leaked
    wrong = [each["metric"] for each in seen.panel("kvtide-leaks", "What is wrong, and whose it is")]
    assert [(each["kind"], each["engine"]) for each in wrong] == [("kv_orphan", scene.ENGINE)]


def test_tenants_are_those_of_the_load(seen: Seen) -> None:
    asker = seen.asker
    came = {
        each["metric"]["tenant"]: float(each["value"][1])
        for each in asker.at(f'kvtide_tenant_requests_total{{engine="{scene.ENGINE}"}}', asker.window.end)
    }
    assert came.keys() == {tenant.name for tenant in scene.TENANTS}
    # One that was cut before it was tokenised has never reached the engine.
    assert seen.load.completed <= sum(came.values()) <= seen.load.started
    quotas = {
        each["metric"]["tenant"]: each["last"] for each in seen.panel("kvtide-tenants", "Tenants") if each["ref"] == "B"
    }
    assert quotas == scene.QUOTAS
    shown = {each["metric"]["tenant"] for each in seen.panel("kvtide-tenants", "Requests")}
    assert came.keys() <= shown


def test_gpus_are_those_of_the_driver(seen: Seen) -> None:
    for gpu in ("0", "1", "2"):
        title = f"Memory of GPU {gpu}"
        parts = [each for each in seen.panel("kvtide-node", title) if "part" in each["metric"]]
        assert sum(each["last"] for each in parts) == scene.TOTAL, title
        whole = [each["last"] for each in seen.panel("kvtide-node", title) if "part" not in each["metric"]]
        assert whole == [scene.TOTAL]
    others = {
        (each["metric"]["gpu"]): each["last"]
        for each in seen.panel("kvtide-node", "Parts now")
        if each["ref"] == "A" and each["metric"]["part"] == "other_processes"
    }
    assert others == {"0": 0, "1": scene.FOREIGN_USED, "2": 0}
    assert seen.one("kvtide-node", "GPUs lost") == 0
    use = {each["metric"]["gpu"]: each["last"] for each in seen.panel("kvtide-node", "GPU memory in use")}
    assert use["1"] - use["0"] == pytest.approx(scene.FOREIGN_USED / scene.TOTAL)
    assert use["2"] < use["0"]


def test_what_was_ordered_and_what_would_be_done(seen: Seen) -> None:
    assert seen.one("kvtide-actions", "Held now") == 1
    (held,) = seen.panel("kvtide-actions", "Levers held")
    assert held["metric"]["lever"] == "active_cap"
    assert seen.one("kvtide-actions", "Nodes by mode", mode="dry-run") == 1
    levers = {
        each["metric"]["lever"]: each["metric"]["result"]
        for each in seen.panel("kvtide-actions", "Actions in the range")
    }
    assert levers["reclaim_orphans"] == "would"


def test_engines_are_counted_by_how_they_are_seen(seen: Seen) -> None:
    title = "Engines that report, and that do not"
    assert seen.one("kvtide-fleet", title, "A") == 1 + len(scene.MORE_ENGINES)
    assert seen.one("kvtide-fleet", title, "C") == 1
    assert seen.one("kvtide-engine", "Engines silent") == 0
    use = seen.one("kvtide-engine", "KV use by the engine's page", engine=scene.HOOKLESS)
    assert use == pytest.approx(scene.HOOKLESS_USE)
