"""Memory that torch keeps in pieces: what counts, what does not, and what would help."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agent.policy.types import TEXTBOOK
from agent.signals.types import NodeSignals
from agent.state import AgentState, Verdict
from engine_hooks.allocator import AllocatorRow
from tests.unit.allocators import make_allocator, make_device, make_event, make_failure, make_segments, make_walk
from tests.unit.timeline import GIB, MIB, UNIX, engine, gpu, member, state, times
from tests.unit.told import Told, allocator_signals, engine_signals, node

KIND = "allocator_fragmentation"


def row(whole: int = 0, free: int = 4 * GIB, **changes: Any) -> AllocatorRow:
    """An allocator with ``free`` bytes in pieces, ``whole`` of them in segments that nothing is in."""
    segments = make_segments(reserved_bytes=70 * GIB, free_bytes=free, whole_free_bytes=whole)
    values = {"devices": (make_device(uuid="GPU-0"),), "walk": make_walk(devices=(segments,)), "tags": ()}
    return make_allocator(**values | changes)


def states(seconds: float = 100, told: AllocatorRow | None = None, **parts: Any) -> Iterator[AgentState]:
    values: dict[str, Any] = {
        "engines": (engine(members=(member(told or row()),)),),
        "gpus": [gpu(72 * GIB)],
    }
    for t in times(seconds):
        yield state(t, **values | parts)


def pieces(fragmentation: float | None, **changes: Any) -> NodeSignals:
    values = {"fragmentation": fragmentation, "free_bytes": 4 * GIB, "largest_free_bytes": GIB}
    return node(allocators=allocator_signals(**values | changes))


def verdict(signals: NodeSignals, told: AllocatorRow | None = None, **parts: Any) -> Verdict | None:
    return Told(KIND, signals).last(states(told=told, **parts))


@pytest.mark.parametrize(
    ("ratio", "tier"), [(0.2, None), (0.21, "note"), (0.3, "note"), (0.31, "warn"), (0.4, "warn"), (0.41, "warn")]
)
def test_a_ratio_alone_gets_nobody_up(ratio: float, tier: str | None) -> None:
    found = verdict(pieces(ratio))
    assert (found and found.tier) == tier


def test_with_allocations_that_are_tried_again_it_pages() -> None:
    found = verdict(pieces(0.55, retries_per_minute=4.0))
    assert found is not None
    assert (found.tier, found.phase) == ("page", "confirmed")
    assert found.sentence == (
        "Torch in engine m's worker 0 on GPU 0 keeps 4.0 GiB that nothing uses, 55% fragmented; the largest piece is "
        "1.0 GiB. It had to empty its cache and try again 4.0 times a minute."
    )
    assert found.evidence["fragmentation_ratio"] == 0.55


def test_five_failures_in_a_row_page_at_once() -> None:
    event = make_event(count=5, at=UNIX)
    failure = make_failure(rank=0, event=event)
    assert failure.judgement is not None
    assert failure.judgement.cause == "fragmented"
    found = Told(KIND, pieces(0.5)).last(states(0, failures=(failure,)))
    assert found is not None
    assert (found.tier, found.phase, found.evidence["failed_allocations"]) == ("page", "confirmed", 5)
    assert "5 allocations failed" in found.sentence
    four = make_failure(rank=0, event=make_event(count=4, at=UNIX))
    twin = Told(KIND, pieces(0.5)).last(states(0, failures=(four,)))
    assert twin is not None
    assert twin.phase == "suspect"


def test_it_says_what_helps_and_what_does_not() -> None:
    nothing = verdict(pieces(0.5))
    assert nothing is not None
    assert "expandable_segments:True" in nothing.remedy
    assert "would give back none of it" in nothing.remedy
    some = verdict(pieces(0.5), row(whole=GIB))
    assert some is not None
    assert "gives back 1.0 GiB in segments that are free as a whole" in some.remedy
    on = verdict(pieces(0.5, retries_per_minute=4.0), row(expandable_segments=True))
    assert on is not None
    assert "are on already" in on.remedy
    assert "expandable_segments:True" not in on.remedy


@pytest.mark.parametrize("why", ["whole segments", "little", "little of the card", "start", "no walk", "nothing free"])
def test_what_looks_like_it_and_is_not(why: str) -> None:
    signals, told = pieces(0.9), row()
    if why == "whole segments":  # torch gives those back by itself before anything fails
        told = row(whole=4 * GIB - 100 * MIB)
    elif why == "little":
        signals, told = pieces(0.9, free_bytes=200 * MIB), row(free=200 * MIB)
    elif why == "little of the card":
        signals, told = pieces(0.9, free_bytes=600 * MIB), row(free=600 * MIB)
    elif why == "start":  # loading, warm-up, graph capture
        signals = NodeSignals(engines=(engine_signals(settled=False),), allocators=signals.allocators)
    elif why == "no walk":
        signals = pieces(None)
    else:
        signals = pieces(0.9, free_bytes=0)
    assert verdict(signals, told) is None


def test_expandable_segments_in_pieces_are_only_noted_until_something_fails() -> None:
    segments = make_segments(reserved_bytes=70 * GIB, free_bytes=4 * GIB, whole_free_bytes=0, expandable_bytes=70 * GIB)
    told = row(walk=make_walk(devices=(segments,)), expandable_segments=True)
    calm, failing = verdict(pieces(0.9), told), verdict(pieces(0.9, retries_per_minute=4.0), told)
    assert calm is not None
    assert failing is not None
    assert (calm.tier, failing.tier) == ("note", "page")


def test_some_pieces_are_how_torch_works_until_something_fails() -> None:
    def tier(free: int, retries: float = 0.0) -> str | None:
        found = verdict(pieces(0.9, free_bytes=free, retries_per_minute=retries), row(free=free))
        return found and found.tier

    assert (tier(2 * GIB), tier(5 * GIB // 2)) == ("note", "warn")
    assert tier(2 * GIB, 4.0) == "note", "a full device makes torch retry, too"
    assert (tier(5 * GIB // 2, 3.0), tier(5 * GIB // 2, 4.0)) == ("warn", "page")
    failure = make_failure(rank=0, event=make_event(at=UNIX))
    found = verdict(pieces(0.9, free_bytes=2 * GIB), row(free=2 * GIB), failures=(failure,))
    assert found is not None
    assert found.tier == "page"


def test_without_a_driver_to_ask_it_is_held_against_what_torch_has() -> None:
    found = Told(KIND, pieces(0.9, gpu="", free_bytes=GIB)).last(states(told=row(free=GIB), gpus=None))
    assert found is not None
    assert found.tier == "note"


def test_overcommit_counts_where_the_device_is_short() -> None:
    much = node(allocators=allocator_signals(overcommit=1.6, slack_bytes=26 * GIB))
    roomy = Told(KIND, much).last(states(gpus=[gpu(40 * GIB)]))
    tight = Told(KIND, much).last(states(gpus=[gpu(72 * GIB)]))
    failing = node(allocators=allocator_signals(overcommit=1.6, slack_bytes=26 * GIB, retries_per_minute=4.0))
    harm = Told(KIND, failing).last(states())
    assert roomy is None
    assert tight is not None
    assert harm is not None
    assert (tight.tier, harm.tier) == ("note", "warn")


def test_the_textbook_judges_the_numbers_alone() -> None:
    for signals, tier in (
        (pieces(0.41), "page"),
        (pieces(0.31), "warn"),
        (node(allocators=allocator_signals(overcommit=1.2)), "warn"),
        (node(allocators=allocator_signals(overcommit=1.5)), "page"),
    ):
        found = Told(KIND, signals, TEXTBOOK).last(states())
        assert found is not None
        assert found.tier == tier


def test_a_process_of_no_engine_gets_nobody_up() -> None:
    trainer = member(row(), role="torch", process="train")
    signals = pieces(0.9, engine="", process="train", role="torch", retries_per_minute=9.0)
    calm = Told(KIND, pieces(0.9, engine="", process="train", role="torch"))
    beside = calm.last(states(engines=(), processes=(trainer,)))
    assert beside is not None
    assert beside.tier == "note"
    found = Told(KIND, signals).last(states(engines=(), processes=(trainer,)))
    assert found is not None
    assert (found.tier, found.subject.process, found.subject.engine) == ("warn", "train", "")
    assert found.sentence.startswith("Torch in process train on GPU 0")


def test_of_two_devices_of_a_process_the_worse_is_told() -> None:
    both = (
        allocator_signals(gpu="1", fragmentation=0.35, free_bytes=4 * GIB),
        *pieces(0.6, retries_per_minute=4.0).allocators,
    )
    found = Told(KIND, node(allocators=both)).last(states())
    assert found is not None
    assert "GPU 0" in found.sentence


def test_what_was_only_noted_must_hold_before_somebody_is_told() -> None:
    def given(now: AgentState) -> NodeSignals:
        t = now.at - UNIX
        return pieces(0.9, retries_per_minute=9.0) if 100 <= t < 110 or t >= 200 else pieces(0.25)

    told = Told(KIND, given)
    tiers = {now.at - UNIX: [(each.phase, each.tier) for each in told.look(now)] for now in states(300)}
    assert tiers[90] == tiers[105] == tiers[259] == [("confirmed", "note")]
    assert tiers[260] == [("confirmed", "page")]


def test_its_life() -> None:
    def given(now: AgentState) -> NodeSignals:
        t = now.at - UNIX
        return pieces(0.5) if 10 <= t < 200 or 230 <= t < 260 else pieces(0.1)

    def seen() -> Iterator[AgentState]:
        for t in times(500):
            hidden = 261 <= t < 400  # the worker says nothing: that is no proof that it is over
            members = () if hidden else (member(row()),)
            yield state(t, engines=(engine(members=members),), gpus=[gpu(72 * GIB)])

    assert Told(KIND, given).phases(seen()) == ["none", "suspect", "confirmed", "resolved", "none"]
    told = Told(KIND, given)
    phases = {now.at - UNIX: [each.phase for each in told.look(now)] for now in seen()}
    assert phases[69] == ["suspect"]
    assert phases[70] == ["confirmed"]
    assert phases[225] == ["confirmed"], "gone for 25 s: one that comes and goes is one"
    assert phases[399] == ["confirmed"], "not seen"
    assert phases[400] == ["resolved"]


def test_what_failed_in_the_process_before_is_not_its_successor_s() -> None:
    failure = make_failure(rank=0, event=make_event(count=5, at=UNIX - 60))
    fresh = (engine(members=(member(row(), started_at=UNIX - 30, instance="second"),)),)
    assert Told(KIND, pieces(0.1)).last(states(failures=(failure,), engines=fresh)) is None
    assert Told(KIND, pieces(0.1)).last(states(failures=(failure,))) is not None
