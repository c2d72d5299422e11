"""An hour of an engine, or of its clients, that calls things by other names each second: few series, no growth, right
sums.
"""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from agent.engines import EngineTable
from agent.judging import LiveJudge
from agent.policy.types import Policy
from agent.state import AgentState
from engine_hooks.detail import OTHER, Detail, TenantRow
from engine_hooks.members import WORKER, MemberReport
from exporters.collectors import COLLECTORS
from exporters.exposition import Exposition
from tests.unit.allocators import make_allocator, make_device
from tests.unit.builders import make_hello, make_report, make_state
from tests.unit.details import (
    make_delayed,
    make_detail,
    make_group,
    make_leak,
    make_pin,
    make_pool_row,
    make_tenant,
    make_tier,
    make_waiting,
)

HOUR, SCRAPE = 3600, 15
TENANTS, ENGINES = 100_000, 10_000
EACH_SECOND = TENANTS // HOUR + 1
ROWS = 33


class Churn:
    """An engine by the hooks' own rules whose rows are all taken by newcomers each second; the rest is in its other."""

    def __init__(self) -> None:
        self.seen = self.folded = 0

    def second(self, monotonic: float) -> Detail:
        """Tell the newest tenants of one request each, all before them in ``other``."""
        self.seen += EACH_SECOND
        rows = [self.row(f"t{number}", 1) for number in range(self.seen - EACH_SECOND, self.seen)]
        self.folded = self.seen - EACH_SECOND
        return make_detail(monotonic=monotonic, tenants=(*rows, self.row(OTHER, self.folded)))

    @staticmethod
    def row(name: str, requests: int) -> TenantRow:
        return make_tenant(tenant=name, requests_total=requests, ended_total={"length": requests}, quota_blocks=None)


class Node:
    """A table, and a judge and scrapers that look at it; ``series``: every label set that was ever told, by page."""

    def __init__(self) -> None:
        self.table = EngineTable(3.0)
        self.judge = LiveJudge(Policy(), None)
        self.series: dict[bool, set[tuple[str, ...]]] = {False: set(), True: set()}
        self.pages = Exposition(), Exposition(detail=True)
        self.state: AgentState = make_state()

    def scraped(self, now: float) -> dict[tuple[str, ...], float]:
        """Look once as the agent does, and as two scrapers do; return all values that are one number."""
        seen = make_state(*self.table.states(now, now), monotonic=now, at=now, failures=(), processes=())
        self.state = replace(seen, judgement=self.judge.look(seen))
        found = {}
        for collect in COLLECTORS:
            for sample in collect(self.state):
                key = (sample.metric.name, *sample.labels)
                self.series[sample.metric.detail].add(key)
                if isinstance(sample.value, float | int):
                    found[key] = sample.value
        for page in self.pages:
            page.render(self.state, compressed=False)
        return found


def requests(found: dict[tuple[str, ...], float]) -> dict[str, float]:
    return {key[2]: value for key, value in found.items() if key[0] == "kvtide_tenant_requests_total"}


def grown() -> Iterator[int]:
    """Yield how much more memory is in use each time, against the first."""
    tracemalloc.start()
    first = tracemalloc.get_traced_memory()[0]
    try:
        while True:
            yield tracemalloc.get_traced_memory()[0] - first
    finally:
        tracemalloc.stop()


def test_a_hundred_thousand_tenants_in_an_hour() -> None:
    node, churn = Node(), Churn()
    node.table.hello(make_hello(), 7, 0.0)
    before: dict[str, float] = {}
    memory = None
    for second in range(1, HOUR + 1):
        now = float(second)
        node.table.report("i1", make_report(sequence=second, monotonic=now), now)
        node.table.detail("i1", churn.second(now), now)
        node.table.tick(now)
        if second % SCRAPE == 0:
            told = requests(node.scraped(now))
            assert sum(told.values()) == churn.seen
            assert told[OTHER] >= before.get(OTHER, 0), "a counter never falls"
            assert len(told) <= ROWS
            before = told
        if second == HOUR // 2:
            memory = grown()
            next(memory)
    assert churn.seen >= TENANTS
    tenants = {key[2] for key in node.series[False] if key[0] == "kvtide_tenant_requests_total"}
    assert len(tenants) <= 64 + 60 + 1
    assert len(node.series[False]) < 3000
    assert len(node.series[True]) < 2000
    assert node.table.folded_names()["tenant"] > TENANTS * 0.9
    assert memory is not None
    assert next(memory) < 2 << 20
    memory.close()


def test_ten_thousand_engine_names_in_an_hour() -> None:
    node = Node()
    memory = None
    labels: set[str] = set()
    for number in range(ENGINES):
        now = 1.0 + number * HOUR / ENGINES
        instance = f"i{number}"
        node.table.hello(make_hello(instance=instance, name=f"n{number}", engine_id=f"e{number}"), 1 + number, now)
        node.table.report(instance, make_report(monotonic=now), now)
        node.table.detail(instance, make_detail(monotonic=now, tenants=(Churn.row(f"t{number}", 1),)), now)
        labels |= {state.engine for state in node.table.states(now, now)}
        if number % 40 == 0:
            node.scraped(now)
        node.table.disconnected(instance, now)
        node.table.tick(now)
        if number == ENGINES // 2:
            memory = grown()
            next(memory)
    named = {label for label in labels if not label.startswith(OTHER)}
    assert 16 <= len(named) <= 64 + 16
    assert labels - named, "whoever came then was served, under another name"
    assert len(labels - named) < 20
    assert node.table.folded_names()["engine"] >= ENGINES - 64 - 16
    assert len(node.series[False]) < 10_000
    assert memory is not None
    assert next(memory) < 4 << 20
    memory.close()


def test_one_process_that_draws_names_leaves_some_to_others() -> None:
    table = EngineTable(3.0)
    for number in range(200):
        table.hello(make_hello(instance=f"i{number}", name=f"n{number}"), 7, 1.0)
    table.hello(make_hello(instance="late", name="late"), 8, 1.0)
    labels = {state.engine for state in table.states(1.0, 0.0)}
    assert sum(not label.startswith(OTHER) for label in labels) == 16 + 1
    assert "late" in labels


def test_links_that_come_and_go_leave_no_more_engines_than_there_may_be_links() -> None:
    table = EngineTable(3.0)
    table.hello(make_hello(instance="here", name="here"), 1, 0.0)
    for number in range(2000):
        table.hello(make_hello(instance=f"i{number}", name=f"n{number % 9}", idle_period_seconds=10.0), 7, 1.0)
        if number % 2:
            table.disconnected(f"i{number}", 1.0)
            table.disconnected(f"i{number - 1}", 1.0)
    labels = [state.engine for state in table.states(1.0, 0.0)]
    assert len(labels) <= 256
    assert "here" in labels


def test_every_other_name_is_bounded_too() -> None:
    """Peers, holders, pools, endings, reasons, hooks, devices, ranks: all that a peer may put into a label."""
    node = Node()
    node.table.hello(make_hello(), 7, 0.0)
    for second in range(1, HOUR + 1):
        now, name = float(second), f"x{second}"
        node.table.hello(make_hello(role=WORKER, instance=name, rank=second), 8, now)
        allocator = make_allocator(devices=(make_device(uuid=name),), backend=name)
        node.table.member(
            name, MemberReport(monotonic=now, resident_bytes=1, allocator=allocator, errors={name: 1}), now
        )
        node.table.report("i1", make_report(sequence=second, monotonic=now), now)
        detail = make_detail(
            monotonic=now,
            transfer_id=name,
            leaks=(make_leak(tenant=name, kind=name, ending=name),),
            delayed=(make_delayed(peer=name, direction=name, tenants={name: 1}),),
            pins=(make_pin(holder=name, pool=name),),
            pools=(make_pool_row(pool=name),),
            groups=(make_group(group=second, kind=name),),
            tiers=(make_tier(tier=name),),
            waiting=make_waiting(reasons={name: 1, "kv_blocks": 2}, stalled_by=name),
            tenants=(make_tenant(ended_total={name: 1}),),
        )
        node.table.detail("i1", detail, now)
        node.table.disconnected(name, now)
        node.table.tick(now)
        if second % SCRAPE == 0:
            found = node.scraped(now)
            reasons = {key[2]: value for key, value in found.items() if key[0] == "kvtide_requests_waiting_by_reason"}
            assert sum(reasons.values()) == 3
    by_family: dict[str, int] = defaultdict(int)
    for key in node.series[False] | node.series[True]:
        by_family[key[0]] += 1
    assert max(by_family.values()) <= 2 * (256 + 16), sorted(by_family.items(), key=lambda pair: -pair[1])[:5]
    assert len(node.series[False]) + len(node.series[True]) < 4000


def test_a_tenant_with_a_quota_is_told_while_clients_draw_names() -> None:
    table, churn = EngineTable(3.0), Churn()
    table.hello(make_hello(), 7, 0.0)
    for second in range(1, 600):
        table.detail("i1", churn.second(float(second)), float(second))
    table.report("i1", make_report(monotonic=600.0), 600.0)
    rows = (make_tenant(tenant="acme", quota_blocks=100), Churn.row("stranger", 1))
    table.detail("i1", make_detail(monotonic=600.0, tenants=rows), 600.0)
    (state,) = table.states(600.0, 600.0)
    assert state.detail is not None
    assert [row.tenant for row in state.detail.tenants or ()] == ["acme", OTHER]


def test_what_is_told_as_it_is_costs_no_copy() -> None:
    table, detail = EngineTable(3.0), make_detail()
    table.hello(make_hello(), 7, 0.0)
    table.report("i1", make_report(monotonic=detail.monotonic), 1.0)
    for _ in range(2):
        table.detail("i1", detail, 1.0)
        (state,) = table.states(1.0, 1.0)
        assert state.detail is detail
