"""What slow estimates rest on is kept over a restart of the agent, and goes on for nothing that began anew."""

from __future__ import annotations

from math import nan

import msgspec
import pytest
from msgspec.structs import replace

from agent.policy.types import DEFAULT
from agent.signals.kept import MOST_TRACKS, KeptTier, KeptTrack, Restored, Tracks
from agent.signals.node import KEEP_SECONDS, NodeTracker
from agent.signals.slow import SlowTrack
from agent.signals.types import NodeSignals
from agent.state import AgentState
from tests.unit.allocators import make_allocator, make_allocator_state, make_device
from tests.unit.builders import make_pool, make_worker
from tests.unit.node_builders import MIB, make_devices, make_gpu, make_host, make_process
from tests.unit.recordings import moment, sound_engine
from tests.unit.series import Wander, added, line

HOUR = 3600.0
TOTAL = 81920 * MIB


def node(second: float, **engine: object) -> AgentState:
    """Everything that has a slow estimate grows by a tenth of itself an hour."""
    share = second / HOUR / 10
    size = int(4000 * MIB * (1 + share))
    gpu = make_gpu("1")
    assert gpu.memory is not None
    allocator = make_allocator(
        devices=(make_device(uuid=gpu.uuid, allocated_bytes=10 * size, reserved_bytes=12 * size),), tags=()
    )
    pool = make_pool(capacity=10_000, held=int(2000 + 1000 * share), orphaned=None, over_freed=0)
    worker = make_worker(allocator=make_allocator_state(row=allocator))
    return moment(
        second,
        sound_engine(pool=pool, running=4, members=(worker,), **engine),
        device=make_devices(replace(gpu, memory=replace(gpu.memory, used=10 * size, free=TOTAL - 10 * size))),
        host=make_host(processes=(make_process(resident_bytes=size),), cgroups=()),
    )


def told(signals: NodeSignals) -> dict[str, bool]:
    rows = {
        "engine": signals.engines[0].slow,
        "process": signals.host[0].slow,
        "gpu": signals.gpus[0].slow,
        "allocator": signals.allocators[0].slow,
    }
    return {name: slow is not None and slow.leaks for name, slow in rows.items()}


def run(tracker: NodeTracker, begin: int, minutes: int, **engine: object) -> dict[str, bool]:
    """What is told at the end of so many minutes."""
    signals = NodeSignals()
    for second in range(begin, begin + 60 * minutes, 60):
        signals = tracker.take(node(second, **engine))
    return told(signals)


@pytest.fixture(scope="module")
def kept() -> Tracks:
    before = NodeTracker(DEFAULT)
    assert run(before, 0, 240) == dict.fromkeys(("engine", "process", "gpu", "allocator"), True)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(before.tracks()), type=Tracks)


AFTER = 4 * 3600 + 300  # five minutes later


def test_what_was_told_before_a_restart_is_told_after_it(kept: Tracks) -> None:
    assert run(NodeTracker(DEFAULT, tracks=kept), AFTER, 4) == dict.fromkeys(
        ("engine", "process", "gpu", "allocator"), True
    )
    assert not any(run(NodeTracker(DEFAULT), AFTER, 4).values()), "without it all of that begins anew"


def test_an_agent_that_restarts_again_before_engines_are_back_forgets_nothing(kept: Tracks) -> None:
    again = NodeTracker(DEFAULT, tracks=kept)
    again.take(moment(AFTER))  # only an engine of another pool yet, no device, no host
    names = {name for name in kept.tracks if not name.startswith("kv/")}
    assert names <= again.tracks().tracks.keys()
    assert run(NodeTracker(DEFAULT, tracks=again.tracks()), AFTER + 60, 4)["gpu"]


def test_what_restarted_meanwhile_begins_anew(kept: Tracks) -> None:
    after = run(NodeTracker(DEFAULT, tracks=kept), AFTER, 4, instance="another")
    assert after == {"engine": False, "process": True, "gpu": True, "allocator": True}


def test_what_comes_late_or_is_of_a_time_to_come_begins_anew(kept: Tracks) -> None:
    late = NodeTracker(DEFAULT, tracks=kept)
    for minute in range(int(KEEP_SECONDS / 60) + 2):
        late.take(moment(AFTER + 60 * minute))
    assert set(late.tracks().tracks) == {"kv/m/hooks/held", "kv/m/hooks/exact"}
    early = replace(kept, monotonic=kept.monotonic + 1e6)
    assert not any(run(NodeTracker(DEFAULT, tracks=early), AFTER, 4).values())


def test_a_track_goes_on_exactly_where_it_was() -> None:
    shape, whole = added(line(30, base=3000), Wander(60, 60)), 10_000.0
    values = [(60.0 * n, shape(60.0 * n)) for n in range(600)]
    through, first, second = SlowTrack(), SlowTrack(), SlowTrack()
    for at, value in values[:300]:
        first.add(at, value, whole)
    second.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(first.kept(("i",), 0.0)), type=KeptTrack), 18_000.0)
    for at, value in values:
        through.add(at, value, whole)
        if at >= 18_000:
            second.add(at, value, whole)
            assert second.slow is None or second.slow == through.slow
    assert second.slow == through.slow
    assert through.slow is not None
    assert through.slow.leaks


def damaged(tier: KeptTier) -> list[KeptTier]:
    times = list(tier.times)
    return [
        replace(tier, times=times[:-1]),
        replace(tier, values=[*tier.values[:-1], nan]),
        replace(tier, times=list(reversed(times))),
        replace(tier, times=[*times[:-1], 1e9]),
        replace(tier, until=None),
        replace(tier, until=nan),
        KeptTier(times=[0.0] * 5000, values=[0.0] * 5000, beside=[0.0] * 5000, until=1.0),
    ]


def test_what_can_not_be_right_is_not_used() -> None:
    track = SlowTrack()
    for n in range(90):
        track.add(60.0 * n, 100.0 + n, 10_000.0)
    sound = track.kept(("i",), 0.0)
    for tier in damaged(sound.tiers[0]):
        fresh = SlowTrack()
        fresh.restore(replace(sound, tiers=(tier, *sound.tiers[1:])), 6000.0)
        assert all(not each.times for each in fresh.kept((), 0.0).tiers)
    fresh = SlowTrack()
    fresh.restore(replace(sound, tiers=sound.tiers[:1]), 6000.0)
    assert all(not each.times for each in fresh.kept((), 0.0).tiers)
    fresh.restore(sound, 6000.0)
    assert fresh.kept(("i",), 0.0) == sound


def test_too_many_are_none() -> None:
    track = SlowTrack().kept(("i",), 0.0)
    few = {str(number): track for number in range(MOST_TRACKS)}
    assert Restored(Tracks(monotonic=0.0, tracks=few)).take("0", ("i",)) == track
    assert Restored(Tracks(monotonic=0.0, tracks=few | {"more": track})).take("0", ("i",)) is None
    assert Restored(Tracks(monotonic=0.0, version=99, tracks=few)).take("0", ("i",)) is None


def test_a_process_is_the_same_although_its_start_moved_with_the_clock() -> None:
    track = SlowTrack().kept((7, 1000.0), 0.0)
    kept = Tracks(monotonic=0.0, tracks={"a": track})
    assert Restored(kept).take("a", (7, 1003.0)) == track
    assert Restored(kept).take("a", (7, 1100.0)) is None
    assert Restored(kept).take("a", (8, 1000.0)) is None


def test_a_track_that_counted_minutes_is_of_use_but_for_them() -> None:
    old = msgspec.json.decode(b'{"instance": [], "begun": 1.0, "tiers": [], "in_a_row": [9, 0]}', type=KeptTrack)
    assert (old.begun, old.said_seconds) == (1.0, (None, None))
