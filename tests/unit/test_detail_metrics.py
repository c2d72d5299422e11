"""Each section of a detail comes out as its series, its absence as none, and no engine can make too many of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from engine_hooks.detail import OTHER, Detail, Histogram
from exporters.collectors import COLLECTORS
from exporters.collectors.rows import KEPT
from exporters.exposition import Exposition
from tests.unit import details as d
from tests.unit.builders import make_engine, make_state

Values = dict[tuple[str, tuple[str, ...]], float | Histogram]


def told(detail: Detail | None) -> Values:
    """Every sample of one engine with ``detail``."""
    state = make_state(make_engine(detail=detail), judgement=None)
    samples = [sample for collect in COLLECTORS for sample in collect(state)]
    found = {(sample.metric.name, sample.labels): sample.value for sample in samples}
    assert len(found) == len(samples), "two samples with the same labels cost the whole scrape"
    return found


def names(values: Values) -> set[str]:
    return {name for name, _ in values}


def of(values: Values, name: str) -> dict[tuple[str, ...], Any]:
    """The samples of one metric, without the engine's label."""
    return {labels[1:]: value for (each, labels), value in values.items() if each == f"kvtide_{name}"}


NOT_SECTIONS = {"monotonic", "transfer_id", "unsupported"}
SECTIONS = [name for name in Detail.__struct_fields__ if name not in NOT_SECTIONS]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_that_is_not_told_makes_no_series_and_says_so(section: str) -> None:
    full, without = told(d.make_detail()), told(d.make_detail(**{section: None}))
    gone = {key for key in full if key not in without}
    assert gone, "a section that no metric shows"
    assert of(full, "detail_supported")[(section,)] == 1
    assert of(without, "detail_supported")[(section,)] == 0
    changed = {key for key in without if key[0] != "kvtide_detail_supported" and without[key] != full[key]}
    assert not changed


@pytest.mark.parametrize("section", ["pools", "groups", "leaks", "delayed", "pins", "tenants", "tiers"])
def test_a_section_with_nothing_in_it_is_supported(section: str) -> None:
    empty = told(d.make_detail(**{section: ()}))
    assert of(empty, "detail_supported")[(section,)] == 1
    assert names(empty) == names(told(d.make_detail(**{section: None})))


def test_without_a_detail_there_is_nothing_of_it() -> None:
    assert not [
        name for name in names(told(None)) if name.startswith(("kvtide_detail", "kvtide_tenant", "kvtide_tier"))
    ]


def test_every_number_of_a_row_is_seen() -> None:
    """A field that no metric shows is one that nobody can alert on: each has a value of its own here."""
    row = d.make_tenant(
        running=101,
        waiting=102,
        held=103.5,
        references=104,
        requests_total=105,
        prompt_tokens_total=106,
        generated_tokens_total=107,
        preempted_total=108,
        ended_total={"finished": 109, "lost": 110},
        sessions=111,
        quota_blocks=112,
        held_age_seconds=113.5,
    )
    shown = {
        value for (name, _), value in told(d.make_detail(tenants=(row,))).items() if name.startswith("kvtide_tenant_")
    }
    assert {101, 102, 103.5, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113.5} <= {
        value for value in shown if not isinstance(value, Histogram)
    }


@pytest.mark.parametrize(
    ("section", "row", "hidden"),
    [
        ("allocation", d.make_allocation(), set()),
        ("work", d.make_work(), {"steepest_request", "prompt_tokens"}),  # its buckets are others here
        ("speculation", d.make_speculation(residue_blocks_total=77), set()),
        ("encoder", d.make_encoder(), set()),
        ("waiting", d.make_waiting(), {"stalled_by"}),
        ("compaction", d.make_compaction(), {"state", "reason"}),
    ],
)
def test_every_number_of_a_section_is_seen(section: str, row: msgspec.Struct, hidden: set[str]) -> None:
    shown = list(told(d.make_detail(**{section: row})).values())
    for field in row.__struct_fields__:
        value = getattr(row, field)
        if field not in hidden:
            parts = list(value.values()) if isinstance(value, dict) else [value]
            assert all(part in shown for part in parts), field


def test_leaks_are_summed_by_kind_tenant_and_ending() -> None:
    rows = (
        d.make_leak(blocks=4),
        d.make_leak(blocks=3, request="b"),
        d.make_leak(blocks=2, ending="finished"),
        d.make_leak(blocks=1, kind="over_freed"),
    )
    assert of(told(d.make_detail(leaks=rows)), "kv_leaked_blocks") == {
        ("orphaned", "acme", "aborted_front_end"): 7,
        ("orphaned", "acme", "finished"): 2,
        ("over_freed", "acme", "aborted_front_end"): 1,
    }


def test_delayed_frees_of_one_peer_are_one_series() -> None:
    rows = (
        d.make_delayed(),
        d.make_delayed(blocks=2, requests=1, oldest_seconds=50.0, lease_seconds=60.0, expired=1),
        d.make_delayed(direction="receive", lease_seconds=None),
    )
    found = told(d.make_detail(delayed=rows))
    send, receive = ("10.0.0.7:5600", "send"), ("10.0.0.7:5600", "receive")
    assert of(found, "kv_delayed_blocks") == {send: 42, receive: 40}
    assert of(found, "kv_delayed_requests") == {send: 4, receive: 3}
    assert of(found, "kv_delayed_oldest_seconds") == {send: 50.0, receive: 42.0}
    assert of(found, "kv_delayed_expired_blocks") == {send: 1, receive: 0}
    assert of(found, "kv_delayed_lease_seconds") == {send: 60.0}


def test_delayed_frees_are_summed_by_tenant_and_both_ends_can_be_joined() -> None:
    rows = (d.make_delayed(), d.make_delayed(peer="b", tenants={"acme": 5, "zeta": 1}))
    found = told(d.make_detail(delayed=rows))
    assert of(found, "kv_delayed_tenant_blocks") == {("acme",): 35, ("none",): 10, ("zeta",): 1}
    assert of(found, "engine_transfer_info") == {("nixl-m",): 1}
    assert of(told(d.make_detail(transfer_id="")), "engine_transfer_info") == {}


def test_pins_say_at_what_age_they_count_as_leaked_only_where_they_do() -> None:
    found = told(d.make_detail())
    odd, known = ("OddConnector", "gpu"), ("SimpleKVOffload", "gpu")
    assert of(found, "kv_pinned_references") == {odd: 12, known: 12}
    assert of(found, "kv_pinned_oldest_seconds") == {odd: 30.0, known: 3.0}
    assert of(found, "kv_pinned_limit_seconds") == {odd: 600.0}


@pytest.mark.parametrize(
    ("section", "rows", "metric"),
    [
        ("delayed", [d.make_delayed(peer=f"p{n}", blocks=100 + n) for n in range(64)], "kv_delayed_blocks"),
        ("leaks", [d.make_leak(tenant=f"t{n}", blocks=100 + n) for n in range(64)], "kv_leaked_blocks"),
        ("pins", [d.make_pin(holder=f"h{n}", references=100 + n) for n in range(64)], "kv_pinned_references"),
    ],
)
def test_unbounded_names_are_folded_and_nothing_is_lost(section: str, rows: list[Any], metric: str) -> None:
    found = of(told(d.make_detail(**{section: tuple(rows)})), metric)
    assert len(found) == KEPT + 1
    assert sum(found.values()) == sum(range(100, 164))
    kept = {value for labels, value in found.items() if OTHER not in labels}
    assert kept == set(range(164 - KEPT, 164)), "the largest keep their names"


def test_a_peer_that_is_called_other_joins_the_rest() -> None:
    rows = [d.make_delayed(peer=f"p{n}") for n in range(KEPT)] + [
        d.make_delayed(peer=OTHER, blocks=9_000),
        d.make_delayed(peer="z"),
    ]
    found = of(told(d.make_detail(delayed=tuple(rows))), "kv_delayed_blocks")
    assert sum(found.values()) == 40 * KEPT + 9_000 + 40


@pytest.mark.parametrize(
    ("section", "row"),
    [
        ("tenants", d.make_tenant()),
        ("groups", d.make_group()),
        ("pools", d.make_pool_row()),
        ("tiers", d.make_tier()),
        ("leaks", d.make_leak()),
        ("delayed", d.make_delayed()),
        ("pins", d.make_pin()),
    ],
)
def test_an_engine_that_says_a_thing_twice_cannot_break_the_scrape(section: str, row: msgspec.Struct) -> None:
    told(d.make_detail(**{section: (row, row)}))


@pytest.mark.parametrize(
    "broken",
    [
        d.make_histogram(counts=(1, 2)),
        d.make_histogram(counts=(1, 2, 3, 4)),
        d.make_histogram(bounds=(1.0, 0.1)),
        d.make_histogram(bounds=(1.0, 1.0)),
        d.make_histogram(counts=(5, -1, 2)),
        d.make_histogram(bounds=(), counts=()),
    ],
)
def test_what_is_no_histogram_makes_no_sample(broken: Histogram) -> None:
    found = told(d.make_detail(allocation=d.make_allocation(wait_seconds=broken)))
    assert not of(found, "admission_wait_seconds")
    assert of(found, "block_allocation_seconds")
    state = make_state(make_engine(detail=d.make_detail(allocation=d.make_allocation(wait_seconds=broken))))
    Exposition().render(state, compressed=False)


def test_an_engine_that_flows_has_lost_no_second() -> None:
    found = told(d.make_detail(waiting=d.make_waiting(stalled_seconds=None, stalled_by="", idle_steps=0)))
    assert of(found, "stalled_seconds") == {(): 0.0}
    assert of(found, "stalled_by") == {}
    stalled = told(d.make_detail(waiting=d.make_waiting(stalled_seconds=0.0)))
    assert of(stalled, "stalled_by") == {("memory",): 1}
    paused = told(d.make_detail(waiting=d.make_waiting(stalled_seconds=None, stalled_by="paused")))
    assert (of(paused, "stalled_seconds"), of(paused, "stalled_by")) == ({(): 0.0}, {("paused",): 1})
