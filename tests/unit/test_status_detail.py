"""What ``kvtide status`` says of an engine's detail: all that is wrong, and nothing where nothing is to be said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from agent.faces import detail as face
from engine_hooks.detail import Detail
from exporters.landing import page
from tests.unit.builders import make_engine, make_state
from tests.unit.details import (
    make_allocation,
    make_compaction,
    make_delayed,
    make_detail,
    make_encoder,
    make_group,
    make_leak,
    make_pin,
    make_pool_row,
    make_speculation,
    make_tenant,
    make_tier,
    make_waiting,
    make_work,
)
from tests.unit.test_status_face import drawn, words

QUIET = Detail(
    monotonic=1.0,
    pools=(),
    groups=(make_group(),),
    leaks=(),
    delayed=(),
    pins=(),
    tenants=(make_tenant(tenant="none"),),
    allocation=make_allocation(),
    work=make_work(rebuilt_preempted_total=0, rebuilt_evicted_total=0, steepest_slope=None),
    speculation=make_speculation(drafted_tokens_total=0),
    encoder=make_encoder(entries=0, orphaned_entries=0),
    tiers=(),
    waiting=make_waiting(reasons={}, stalled_seconds=None, stalled_by=""),
)


def said(detail: Detail, width: int = 100) -> str:
    return words(drawn(make_state(make_engine(detail=detail)), width))


def test_a_quiet_engine_has_nothing_to_say() -> None:
    assert face.lines_of(QUIET, {}) == []
    assert face.lines_of(Detail(monotonic=1.0, unsupported={"encoder": "this model has no encoder"}), {}) == []


@pytest.mark.parametrize("width", [80, 100, 140])
def test_everything_that_is_wrong_is_said_at_any_width(width: int) -> None:
    detail = make_detail(speculation=make_speculation(stuck=2, residue_blocks_total=3))
    text = said(detail, width)
    for part in (
        "leaked 4 blocks: tenant acme, request 3fa2b1c4d5e6, aborted at the front end 14 s ago",
        "over-freed 1 block: tenant acme, request 3fa2b1c4d5e6, finished 14 s ago",
        "kept 40 blocks of 3 requests for 10.0.0.7:5600 (send), oldest 42 s of a lease of 8 min",
        "pinned 12 references by OddConnector, oldest 30 s; can't be seen into, leaked at 10 min",
        "12 references by SimpleKVOffload, oldest 3.0 s",
        "pool cpu: 40 of 512 blocks held, 1 leaked, 2 over-freed",
        "STALLED no token for 3.5 s, waiting for memory",
        "waiting 2 for memory and 1 for a grammar; 3 refused by memory, the first 4.5 s ago",
        "acme 180 of 400 5 2 70,000 3 17",
        "rebuilt 800 tokens (1.6% of prefill): 480 preempted and 320 evicted; cost 1.2 s",
        "steepest request aa11bb22cc33 takes 2.5 blocks/s",
        "drafts 62% of 4,000 tokens accepted; 11 interrupted, left 3 blocks; 2 requests stuck for more than 30 s",
        "encoder 1,024 of 8,192 tokens held, 256 tokens leaked",
        "tier cpu: 700 of 2,048 blocks in transfer, 600 cached, 5 jobs, oldest 61 s, 1 stuck for more than 60 s",
        "groups references: 0 full_attention 310, 1 sliding_window 40",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"delayed": (make_delayed(blocks=40, oldest_seconds=120.0),)},
            "of a lease of 8 min; most of tenant acme; levels off near 160",
        ),
        ({"delayed": (make_delayed(oldest_seconds=720.0, expired=7),)}, "oldest 12 min, 7 past the lease of 8 min"),
        ({"delayed": (make_delayed(peer="nixl-m"),)}, "3 requests for engine m (send)"),
        ({"delayed": (make_delayed(lease_seconds=None, tenants={"none": 40}),)}, "oldest 42 s, no lease pinned"),
        ({"delayed": (make_delayed(lease_seconds=None),)}, "oldest 42 s, no lease"),
        (
            {"delayed": (make_delayed(peer="", direction="deferred", lease_seconds=None),)},
            "3 requests for a step in flight, oldest 42 s",
        ),
        (
            {"pools": (make_pool_row(orphaned=None, over_freed=None, reason="no books"),)},
            "no exact accounting: no books",
        ),
        ({"tenants": (make_tenant(held=None),)}, "acme not known of 400 5 2"),
        (
            {"tiers": (make_tier(used=None, capacity=None, pending=0, stuck=0),)},
            "tier cpu: not known blocks in transfer",
        ),
        (
            {"unsupported": {"tiers": "no connector", "leaks": "its pool is unknown", "work": "no taps"}},
            "not told leaks: its pool is unknown work: no taps tenants",
        ),
        (
            {"work": make_work(rebuilt_preempted_total=None, rebuilt_evicted_total=5)},
            "5 tokens (0.0% of prefill): 5 evicted;",
        ),
        (
            {"waiting": make_waiting(stalled_by="paused", stalled_seconds=61.0)},
            "paused on purpose: no token is scheduled",
        ),
        (
            {"leaks": (make_leak(tenant="other", request="", ending="finished"),)},
            "several requests, the first 14 s ago",
        ),
        ({"leaks": (make_leak(ending="running"),)}, "tenant acme, request 3fa2b1c4d5e6, still running"),
        (
            {"delayed": (make_delayed(direction="loading", lease_seconds=None, tenants={}),), "pins": ()},
            "40 blocks of 3 requests for KV to come from 10.0.0.7:5600, oldest 42 s pool",
        ),
        ({"delayed": (make_delayed(peer="unknown"),)}, "3 requests for an unknown peer (send)"),
        (
            {"leaks": (make_leak(tenant="unknown", request="", ending="unknown"),)},
            "4 blocks: no request that was seen; found 14 s ago",
        ),
    ],
)
def test_the_line(changes: dict[str, object], text: str) -> None:
    assert text in said(make_detail(**changes))


@pytest.mark.parametrize(
    ("changes", "well"),
    [
        ({}, True),
        ({"delayed": (make_delayed(),), "waiting": make_waiting(stalled_seconds=None, stalled_by="")}, True),
        ({"waiting": make_waiting(stalled_seconds=9.0)}, True),
        ({"waiting": make_waiting(stalled_seconds=10.0)}, False),
        ({"speculation": make_speculation(stuck=1)}, False),
        ({"tiers": (make_tier(),)}, False),
        ({"encoder": make_encoder()}, False),
        ({"leaks": (make_leak(),)}, False),
    ],
)
def test_what_is_wrong_and_has_no_verdict_yet_is_not_called_well(changes: dict[str, object], well: bool) -> None:
    detail = msgspec.structs.replace(QUIET, **changes)
    engine = make_engine(detail=detail, verdicts=())
    text = words(drawn(make_state(engine)))
    assert ("Nothing is wrong." in text) == well
    page_text = page(make_state(engine))
    assert ("Nothing is wrong." in page_text) == well


def test_no_plateau_is_told_from_the_first_seconds_of_a_lease() -> None:
    assert "levels off" not in said(make_detail(delayed=(make_delayed(oldest_seconds=20.0),)))


def test_long_lists_are_cut_and_the_rest_is_summed_up() -> None:
    leaks = tuple(make_leak(request=f"r{number}", blocks=10 + number) for number in range(9))
    delayed = tuple(make_delayed(peer=f"p{number}", blocks=10) for number in range(9))
    tenants = tuple(make_tenant(tenant=f"t{number}", held=float(number)) for number in range(64))
    text = said(make_detail(leaks=leaks, delayed=delayed, tenants=tenants))
    assert "18 blocks: tenant acme, request r8" in text
    assert f"{10 + 11 + 12 + 13 + 14} blocks by 5 more" in text
    assert "50 blocks for 5 more" in text
    assert "t63 63 of 400 5 2 70,000" in text
    assert "59 more 1,711" in text
    assert "t58" not in text
    engine = make_engine(detail=make_detail(leaks=leaks, tenants=tenants))
    assert len(drawn(make_state(engine, judgement=None)).partition("╰")[0].splitlines()) < 60


def test_what_is_late_comes_before_what_is_large() -> None:
    late = make_delayed(peer="late", blocks=1, expired=1, oldest_seconds=900.0)
    text = said(make_detail(delayed=(make_delayed(peer="large", blocks=900), late)))
    assert text.index("late (send)") < text.index("large (send)")


@pytest.mark.parametrize("name", ["[/bold]", "[red]x", "a" * 64])
def test_an_engines_words_are_text_and_not_markup(name: str) -> None:
    detail = make_detail(
        leaks=(make_leak(request=name, tenant=name),),
        delayed=(make_delayed(peer=name),),
        pins=(make_pin(holder=name),),
        tenants=(make_tenant(tenant=name),),
        waiting=make_waiting(reasons={name: 1}, stalled_by=name),
        unsupported={name: name},
    )
    text = drawn(make_state(make_engine(detail=detail)))
    assert name[:20] in text


def test_where_there_is_no_room_the_tenants_name_is_folded_and_no_number_cut() -> None:
    row = make_tenant(tenant="umbrella " * 4, prompt_tokens_total=27_000_000, generated_tokens_total=914)
    text = said(msgspec.structs.replace(QUIET, tenants=(row,)), 80)
    assert "27,000,914" in text
    for name in ("blocks", "running", "waiting", "tokens", "preempted", "sessions"):
        assert name in text


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({}, "by 900 blocks, 28.1 MiB given back"),
        ({"offline": 1, "released_bytes": None}, "by 1 block, no memory can be given back"),
        (
            {"state": "growing", "reason": "pressure: few blocks are free"},
            "by 900 blocks, 28.1 MiB given back; it grows back: pressure: few blocks are free",
        ),
        ({"state": "stopped", "offline": 0, "reason": "x"}, "by 0 blocks, 28.1 MiB given back; it stopped halfway: x"),
        ({"state": "idle", "offline": 0}, None),
    ],
)
def test_a_pool_that_was_made_smaller_says_so_on_all_faces(row: dict[str, Any], told: str | None) -> None:
    """Its capacity alone looks as if it had come up like that."""
    detail = msgspec.structs.replace(QUIET, compaction=make_compaction(**row))
    lines = [each for each in face.lines_of(detail, {}) if each.label == "smaller"]
    assert [each.text for each in lines] == ([] if told is None else [told])
    state = make_state(make_engine(detail=detail))
    for shown in (words(drawn(state)), words(page(state))):
        assert ("smaller" in shown, told is None or told in shown) == (told is not None, True)
