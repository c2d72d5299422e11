"""How many series a node makes: few enough on the page that everybody scrapes, and nothing is gone for that."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from msgspec.structs import replace

from agent.state import AgentState
from alerts.build import BUILT
from engine_hooks.detail import Histogram
from exporters.catalogue import CATALOGUE, Metric
from exporters.collectors import (
    COLLECTORS,
    MOSTLY_BASE,
    OF_DETAIL,
    allocation,
    device,
    members,
    signals,
    signals_around,
    work,
)
from exporters.collectors.base import Sample, sound
from exporters.exposition import Exposition
from tests.unit.builders import make_engine, make_hooks, make_pool, make_state
from tests.unit.busy_node import SIZE, TENANTS, busy_node
from tests.unit.details import make_allocation, make_detail, make_histogram, make_tenant
from tests.unit.node_builders import make_devices, make_gpu

MOST = 2000  # on /metrics
DETAIL_MOST = 4500
BY_NAME = {metric.name: metric for metric in CATALOGUE}
HISTOGRAMS = [metric for metric in CATALOGUE if metric.bounds]


def series(state: AgentState, *, detail: bool) -> Counter[str]:
    """Series of a page by family: a histogram is its buckets, its sum and its count."""
    found: Counter[str] = Counter()
    for collect in COLLECTORS:
        for sample in collect(state):
            value = sample.value
            if sample.metric.detail is detail:
                found[sample.metric.name] += len(value.counts) + 2 if isinstance(value, Histogram) else 1
    return found


def table(found: Counter[str], most: int) -> str:
    rows = "\n".join(f"{number:6} {name}" for name, number in found.most_common())
    return f"{found.total()} series, {most} at most; the largest families first:\n{rows}"


@pytest.mark.parametrize(("detail", "most"), [(False, MOST), (True, DETAIL_MOST)])
def test_a_busy_node_with_every_family_in_use_makes_few_series(detail: bool, most: int) -> None:
    found = series(busy_node(), detail=detail)
    here = {metric.name for metric in CATALOGUE if metric.detail is detail}
    assert set(found) == here, "a family that is not there costs nothing"
    assert found.total() <= most, table(found, most)
    assert found.total() > 0.85 * most, "state what there is"
    text = Exposition(detail=detail).render(busy_node(), compressed=False).decode()
    assert sum(not line.startswith("#") for line in text.splitlines()) == found.total()


def test_it_is_the_node_that_it_is_said_to_be() -> None:
    state = busy_node()
    assert len(state.engines) == len(state.device.gpus if state.device else ()) == SIZE == 8
    rows = [row for engine in state.engines for row in (engine.detail.tenants if engine.detail else None) or ()]
    assert len({row.tenant for row in rows}) == len(rows) == TENANTS == 50
    assert all(row.running and row.requests_total for row in rows)
    assert all(engine.detail and engine.pool and engine.members for engine in state.engines)
    assert state.judgement is not None
    assert len(state.judgement.signals.engines) == len(state.judgement.signals.gpus) == SIZE


def test_what_rules_read_is_on_the_page_that_everybody_scrapes() -> None:
    rules = "".join(file.read_text() for file in sorted(Path(BUILT).glob("kvtide-*.yml")))
    # Not the series that rules record: these have colons.
    read = {
        re.sub("_(bucket|sum|count)$", "", name) if name not in BY_NAME else name
        for name in re.findall(r"(?<![\w:])kvtide_[a-z0-9_]+(?![\w:])", rules)
    } & set(BY_NAME)
    assert len(read) > 50
    assert sorted(name for name in read if BY_NAME[name].detail) == []


def test_what_is_left_out_for_the_first_page_has_nothing_of_it() -> None:
    left_out = {sample.metric for collect in OF_DETAIL for sample in collect(busy_node())}
    assert left_out
    assert all(metric.detail for metric in left_out)
    here = {sample.metric.name for collect in MOSTLY_BASE for sample in collect(busy_node())}
    assert here >= {metric.name for metric in CATALOGUE if not metric.detail}


@pytest.mark.parametrize("subject", [allocation, device, members, signals, signals_around, work])
def test_what_many_series_are_about_is_not_made_for_the_first_page_where_only_the_second_has_it(
    subject: ModuleType,
) -> None:
    """Half of a scrape's cost is in making samples; what is then left out was made for nothing."""
    for state in (busy_node(), make_state()):
        assert [sample.metric.name for sample in subject.collect(state) if sample.metric.detail] == []
    assert list(subject.collect_detail(busy_node())) != []


def test_no_family_is_on_both_pages_and_none_on_neither() -> None:
    pages = [
        {line.split()[2] for line in text.decode().splitlines() if line.startswith("# TYPE")}
        for detail in (False, True)
        for text in [Exposition(detail=detail).render(make_state(), compressed=False)]
    ]
    assert not pages[0] & pages[1]
    assert pages[0] | pages[1] == set(BY_NAME)


def test_a_zero_is_written() -> None:
    """A counter that begins with its first event loses it to increase(); a board can't tell nothing from no word."""
    nothing = {"orphaned": 0, "over_freed": 0, "ledger_drift": 0, "delayed": 0, "deferred": 0, "pinned": 0}
    tenant = make_tenant(running=0, waiting=0, preempted_total=0, sessions=0)
    allocation = make_allocation(
        refused_total=0, preempted_total=0, consecutive_refusals=0, most_retries=0, waiting_refused=0
    )
    engine = make_engine(
        pool=make_pool(**nothing),
        detail=make_detail(tenants=(tenant,), allocation=allocation),
        hooks=make_hooks(errors={}, off={}, dropped_frames=0),
        running=0,
        waiting=0,
    )
    rows = make_gpu("0").remapped_rows
    assert rows is not None
    gpu = make_gpu("0", throttle=(), remapped_rows=replace(rows, corrected=0, uncorrected=0, pending=False), mig=False)
    state = make_state(engine, device=make_devices(gpu))
    found = {(sample.metric.name, *sample.labels): sample.value for collect in COLLECTORS for sample in collect(state)}
    for name in (
        "kv_blocks_orphaned",
        "kv_blocks_over_freed",
        "kv_blocks_delayed",
        "kv_blocks_pinned",
        "ledger_drift_references_total",
        "requests_running",
        "requests_waiting",
        "allocation_refused_total",
        "requests_preempted_total",
        "requests_waiting_refused",
        "hooks_off",
        "engine_frames_dropped_total",
    ):
        assert found[f"kvtide_{name}", "m"] == 0, name
    for name in ("requests_running", "requests_waiting", "preempted_total", "sessions"):
        assert found[f"kvtide_tenant_{name}", "m", "acme"] == 0, name
    for name in ("row_remap_pending", "row_remap_failed", "mig_enabled", "unified_memory"):
        assert found[f"kvtide_gpu_{name}", "0"] == 0, name
    assert found["kvtide_gpu_throttled", "0", "hw_slowdown"] == 0


@pytest.mark.parametrize("metric", HISTOGRAMS, ids=lambda metric: metric.name)
def test_the_buckets_are_few_and_those_that_the_sources_count_by(metric: Metric) -> None:
    """Else one would be left out, since nobody knows what was below it."""
    assert metric.type == "histogram"
    assert list(metric.bounds) == sorted(set(metric.bounds))
    assert len(metric.bounds) <= 6
    found = [sample.value for collect in COLLECTORS for sample in collect(busy_node()) if sample.metric == metric]
    assert found
    assert all(isinstance(value, Histogram) and value.bounds == metric.bounds for value in found)


def test_buckets_are_added_up_and_nothing_is_lost() -> None:
    wait = BY_NAME["kvtide_admission_wait_seconds"]
    fine = Histogram(bounds=(0.01, 0.05, 0.1, 0.25, 0.5, 2.5, 5.0, 10.0), counts=(1, 2, 3, 4, 5, 6, 7, 8, 9), sum=9.5)
    (sample,) = sound(wait, ("m",), fine)
    assert sample == Sample(wait, ("m",), Histogram(bounds=(0.05, 0.1, 0.5, 5.0), counts=(3, 3, 9, 13, 17), sum=9.5))
    odd = Histogram(bounds=(0.2, 0.5), counts=(1, 2, 3), sum=9.5)
    (sample,) = sound(wait, ("m",), odd)
    assert sample.value == Histogram(bounds=(0.5,), counts=(3, 3), sum=9.5), "a bound that it does not have is left out"
    assert sound(wait, ("m",), Histogram(bounds=(0.5, 0.1), counts=(1, 2, 3), sum=9.5)) == ()


def test_sessions_of_all_tenants_are_one_histogram() -> None:
    lives = [make_histogram(bounds=(10.0, 60.0, 1800.0), counts=(1, 2, 3, 4), sum=5.0) for _ in range(2)]
    odd = make_histogram(bounds=(7.0,), counts=(1, 1), sum=1.0)
    rows = tuple(
        make_tenant(tenant=str(at), session_lifetime_seconds=each) for at, each in enumerate((*lives, odd, None))
    )
    state = make_state(make_engine(detail=make_detail(tenants=rows)))
    (found,) = (
        sample.value
        for collect in COLLECTORS
        for sample in collect(state)
        if sample.metric.name == "kvtide_session_lifetime_seconds"
    )
    assert found == Histogram(bounds=(60.0, 1800.0), counts=(6, 6, 8), sum=10.0), "one that counts otherwise is not in"
