"""What is made of a snapshot: sums that add up, gaps and who pins them, what did not end, what grew."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.snapshot.analyse import analyse
from agent.snapshot.compare import compare
from agent.snapshot.errors import SnapshotError
from agent.snapshot.gaps import LARGE_PAGE
from agent.snapshot.model import Snapshot
from agent.snapshot.parse import parse
from agent.snapshot.report import DeviceReport, Report
from tests.bed.snapshots import GIB, MIB, AllocatorBed, as_torch_1_13, as_torch_2_0, server_like, stacks

SIZE = 1 << 30  # of the file: large enough for all that is repeated by reference here


def parsed(raw: Any) -> Snapshot:
    return parse(copy.deepcopy(raw), SIZE)


def report_of(bed: AllocatorBed) -> DeviceReport:
    (device,) = analyse(parsed(bed.snapshot()), "x").devices
    return device


def labels(device: DeviceReport, level: str) -> list[str]:
    return [finding.sentence for finding in device.findings if finding.level == level]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 300))
def test_all_sums_add_up(seed: int, steps: int) -> None:
    draw = random.Random(seed)
    bed, live, sites = AllocatorBed(), [], stacks(9)
    for _ in range(steps):
        if live and draw.random() < 0.45:
            bed.free(live.pop(draw.randrange(len(live))), wait=draw.random() < 0.1)
        else:
            stream, pool = draw.choice([(0, (0, 0)), (3, (0, 0)), (3, (2, 0))])
            size = int(2 ** draw.uniform(0, 27))
            live.append(bed.alloc(size, draw.choice(sites), stream=stream, pool=pool))
    raw = bed.snapshot()
    (device,) = analyse(parsed(raw), "x").devices
    usage = device.usage
    assert usage.reserved == sum(segment["total_size"] for segment in raw["segments"]) == bed.reserved
    assert usage.allocated == sum(segment["allocated_size"] for segment in raw["segments"])
    assert usage.requested == sum(segment["requested_size"] for segment in raw["segments"])
    assert usage.reserved == usage.allocated + usage.awaiting + usage.inactive
    assert sum(band.size for band in device.bands) == usage.inactive
    for name in ("segments", "reserved", "allocated", "awaiting", "inactive"):
        assert sum(getattr(row.usage, name) for row in device.pools) == getattr(usage, name)
    assert sum(site.size for site in device.live) + device.live_rest == usage.allocated + usage.awaiting
    gain = device.what_if
    assert sum(row.share for row in device.holders) + device.holders_rest == gain.gaps
    assert 0 <= gain.low <= gain.high <= gain.gaps
    assert gain.now + gain.gaps == device.common.inactive
    assert all(row.alone <= row.share for row in device.holders)
    # All that was allocated in the trace and did not end is in the blocks too.
    assert device.trace is not None
    assert device.trace.open_total == usage.requested


def test_fragmentation_contiguity_overcommit() -> None:
    bed = AllocatorBed()
    keep = [bed.alloc(64 * MIB, frames) for frames in stacks(4)]
    for address in keep[:3]:
        bed.free(address)
    usage = report_of(bed).usage
    assert (usage.reserved, usage.allocated, usage.inactive) == (256 * MIB, 64 * MIB, 192 * MIB)
    assert usage.largest_free == 64 * MIB
    assert usage.fragmentation == pytest.approx(2 / 3)
    assert usage.contiguity == pytest.approx(1 / 3)
    assert usage.overcommit == 4.0


def test_nothing_free_has_no_fragmentation() -> None:
    bed = AllocatorBed()
    bed.alloc(64 * MIB)
    usage = report_of(bed).usage
    assert usage.inactive == 0
    assert usage.fragmentation is None
    assert usage.contiguity is None


def test_the_band_of_16_to_32_mib_is_seen() -> None:
    bed, site = AllocatorBed(), stacks(2)
    addresses = [bed.alloc(24 * MIB, site[0]) for _ in range(40)]
    for address in addresses[::2]:
        bed.free(address)
    device = report_of(bed)
    (band,) = [band for band in device.bands if band.low == 16 * MIB]
    assert (band.high, band.count, band.size) == (32 * MIB, 20, 480 * MIB)
    assert any("16 to 32 MiB" in text for text in labels(device, "note"))


def fragmented() -> AllocatorBed:
    """Many segments of 200 MiB of which one small survivor keeps each from going back."""
    bed, sites = AllocatorBed(), stacks(3)
    for _ in range(20):
        big = bed.alloc(180 * MIB, sites[0])
        bed.free(big)
        bed.alloc(20 * MIB, sites[1])
        bed.alloc(150 * MIB, sites[0])
    live = [address for address, block in bed._live.items() if block.requested == 150 * MIB]
    for address in live:
        bed.free(address)
    return bed


def test_who_pins_free_space_is_named_and_what_expandable_segments_would_give() -> None:
    device = report_of(fragmented())
    top = device.holders[0]
    assert top.site.name == "forward_1"
    assert top.alone == top.share == device.common.inactive - device.what_if.now
    gain = device.what_if
    assert gain.low % LARGE_PAGE == 0
    assert 0 < gain.low <= gain.high
    assert any("95% fragmented" in text for text in labels(device, "bad"))


def test_a_busy_server_is_not_fragmented_and_leaks_nothing() -> None:
    device = report_of(server_like(2000))
    assert labels(device, "bad") == []
    assert device.findings[0].level == "good"
    assert device.usage.fragmentation is not None
    assert device.usage.fragmentation > 0.4  # of next to nothing, which is no finding


def test_a_leak_is_named_by_its_call_site() -> None:
    device = report_of(server_like(2000, leak_every=40))
    (text,) = labels(device, "bad")
    assert "forward_23 keeps what it allocates: 50 of 50" in text
    assert device.trace is not None
    first = device.trace.open[0]
    assert (first.site.name, first.site.count, first.tenths) == ("forward_23", 50, 10)


def test_a_burst_that_is_still_in_use_is_no_leak() -> None:
    bed, sites = server_like(2000), stacks(24)
    for _ in range(50):
        bed.alloc(3 * MIB, sites[23])
    assert labels(report_of(bed), "bad") == []


def test_the_loading_of_a_model_is_no_leak() -> None:
    bed, sites = AllocatorBed(), stacks(3)
    for layer in range(60):
        bed.alloc(400 * MIB, sites[0])
        bed.free(bed.alloc(MIB, sites[1])) if layer % 4 == 0 else None
    assert labels(report_of(bed), "bad") == []


def test_a_free_that_waits_for_a_stream_is_no_leak_and_is_shown() -> None:
    bed, site = AllocatorBed(), stacks(1)[0]
    address = bed.alloc(64 * MIB, site)
    bed.alloc(64 * MIB, site)
    bed.free(address, wait=True)
    device = report_of(bed)
    assert device.usage.awaiting == 64 * MIB
    assert device.trace is not None
    assert device.trace.awaiting == 64 * MIB
    assert device.trace.open_total == 64 * MIB


def oom_of(bed: AllocatorBed, size: int) -> Any:
    with pytest.raises(MemoryError):
        bed.alloc(size, stacks(1)[0])
    device = report_of(bed)
    assert device.trace is not None
    (oom,) = device.trace.ooms
    assert oom.sentence in labels(device, "bad")[0]
    return oom


def test_truly_out() -> None:
    bed = AllocatorBed(capacity=GIB)
    bed.alloc(900 * MIB)
    oom = oom_of(bed, 400 * MIB)
    assert (oom.cause, oom.device_free, oom.inactive) == ("out", 124 * MIB, 0)


def test_out_of_memory_by_fragmentation() -> None:
    bed = AllocatorBed(capacity=GIB)
    addresses = [bed.alloc(100 * MIB) for _ in range(10)]
    for address in addresses[::2]:
        bed.free(address)
    oom = oom_of(bed, 400 * MIB)
    assert (oom.cause, oom.inactive) == ("fragmented", 500 * MIB)


def test_free_memory_of_another_stream_is_unusable() -> None:
    bed = AllocatorBed(capacity=GIB)
    bed.free(bed.alloc(600 * MIB, stream=5))
    assert oom_of(bed, 500 * MIB).cause == "unusable"


def test_free_memory_of_a_private_pool_is_unusable() -> None:
    bed = AllocatorBed(capacity=GIB)
    bed.free(bed.alloc(800 * MIB, pool=(1, 0)))
    assert oom_of(bed, 500 * MIB).cause == "unusable"


def test_room_on_the_device_that_was_refused_is_unusable() -> None:
    bed = AllocatorBed(capacity=GIB)
    bed.alloc(100 * MIB)
    raw = bed.snapshot()
    raw["device_traces"][0].append({"action": "oom", "size": 200 * MIB, "device_free": 900 * MIB, "stream": 0})
    trace = analyse(parsed(raw), "x").devices[0].trace
    assert trace is not None
    assert trace.ooms[0].cause == "unusable"
    assert "memory limit" in trace.ooms[0].sentence


def test_a_failure_long_ago_is_judged_by_its_own_moment() -> None:
    bed = AllocatorBed(capacity=GIB)
    held = [bed.alloc(100 * MIB) for _ in range(10)]
    with pytest.raises(MemoryError):
        bed.alloc(400 * MIB)
    for address in held:
        bed.free(address)
    for _ in range(60):
        bed.free(bed.alloc(MIB // 2))
    trace = report_of(bed).trace
    assert trace is not None
    # All is free by now; then nothing was.
    assert (trace.ooms[0].cause, trace.ooms[0].inactive) == ("out", 0)


def without_file(value: Report) -> bytes:
    return msgspec.json.encode(value.devices)


def test_older_formats_give_the_same_sums() -> None:
    raw = server_like(300, leak_every=10).snapshot()
    new, middle, old = (analyse(parsed(form), "x") for form in (raw, as_torch_2_0(raw), as_torch_1_13(raw)))
    for other in (middle, old):
        # These forms know no private pools: their segments count as common.
        assert other.devices[0].usage == new.devices[0].usage
        assert other.devices[0].live == new.devices[0].live
        assert other.devices[0].bands == new.devices[0].bands
    assert old.devices[0].trace is None
    assert middle.devices[0].trace is not None
    assert middle.devices[0].trace.seconds is None
    assert middle.devices[0].trace.open_total == new.devices[0].trace.open_total  # type: ignore[union-attr]


def test_missing_fields_are_told_and_cost_only_what_they_say() -> None:
    raw = server_like(50).snapshot()["segments"]
    for segment in raw:
        for key in ("device", "segment_type", "stream", "segment_pool_id", "is_expandable", "frames"):
            del segment[key]
        for block in segment["blocks"]:
            for key in ("address", "requested_size", "frames"):
                del block[key]
    snapshot = parsed(raw)
    assert {note.split(":")[0] for note in snapshot.notes} == {
        "segments don't say their device",
        "segments don't say whether they are small or large",
        "requested sizes are not recorded",
    }
    assert [segment.small for segment in snapshot.segments] == [
        segment.small for segment in parsed(server_like(50).snapshot()).segments
    ]


def test_what_does_not_agree_with_itself_is_noted() -> None:
    raw = server_like(50).snapshot()
    raw["segments"][0]["total_size"] += 512
    raw["device_traces"][0].append({"action": "teleport", "addr": 1, "size": 2})
    snapshot = parsed(raw)
    assert "segments[0]: blocks add up to" in snapshot.notes[0]
    assert "teleport" in snapshot.notes[1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw["segments"][2].update(total_size="big"), "segments[2].total_size: 'big'; must be an integer"),
        (lambda raw: raw["segments"][2].update(total_size=-1), "segments[2].total_size: -1; must be"),
        (lambda raw: raw["segments"][2].pop("address"), "segments[2]: has no address"),
        (lambda raw: raw["segments"][2].update(segment_type="tiny"), "must be small or large"),
        (lambda raw: raw["segments"][2].update(segment_pool_id=7), "must be a pair of integers"),
        (lambda raw: raw["segments"][2].update(is_expandable=1), "must be true or false"),
        (lambda raw: raw["segments"][2].update(blocks=None), "segments[2].blocks: None; must be a list"),
        (
            lambda raw: raw["segments"][2]["blocks"][0].update(state="lost"),
            "segments[2].blocks[0].state: 'lost'; must be",
        ),
        (lambda raw: raw["segments"][2]["blocks"][0].update(state=[]), "segments[2].blocks[0].state"),
        (lambda raw: raw["segments"][2]["blocks"][0].update(size=1.5), "segments[2].blocks[0].size: 1.5"),
        (lambda raw: raw["segments"][2]["blocks"][0].update(frames=[1]), "segments[2].blocks[0].frames: 1; must be"),
        (lambda raw: raw.update(segments={}), "segments: a dict of 0; must be a list"),
        (lambda raw: raw.update(device_traces=[7]), "device_traces[0]: 7; must be a list"),
        (lambda raw: raw["device_traces"][0].insert(0, []), "device_traces[0][0]: a list of 0; must be a dict"),
        (lambda raw: raw["device_traces"][0][1].update(addr=None), "device_traces[0][1].addr: None"),
        (lambda raw: raw["device_traces"][0][0].update(size="x"), "device_traces[0][0].size: 'x'"),
        (lambda raw: raw["device_traces"][0][0].update(time_us="x"), "device_traces[0][0].time_us: 'x'"),
        (lambda raw: raw.update(allocator_settings=[]), "allocator_settings: a list"),
        (lambda raw: raw.pop("segments"), "this has: device_traces"),
    ],
)
def test_a_wrong_type_is_named_with_its_place_and_what_is_allowed(change: Any, says: str) -> None:
    raw = copy.deepcopy(server_like(20).snapshot())
    change(raw)
    with pytest.raises(SnapshotError) as caught:
        parse(raw, SIZE)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_files_show_what_grew_and_where() -> None:
    before, after = parsed(server_like(1000).snapshot()), parsed(server_like(1000, leak_every=10).snapshot())
    (device,) = compare([before, after], ["a", "b"]).devices
    first = device.sites[0]
    assert (first.site.name, first.count_grown) == ("forward_23", 100)
    assert first.grown >= 300 * MIB
    assert device.findings[0].level == "note"
    assert "forward_23" in device.findings[0].sentence
    assert device.gained > 0
    allocated = device.usages[1].allocated - device.usages[0].allocated
    awaiting = device.usages[1].awaiting - device.usages[0].awaiting
    assert sum(row.grown for row in device.sites) + device.sites_rest == allocated + awaiting


def test_a_third_file_tells_a_leak_from_load() -> None:
    def at(steps: int, leak_every: int) -> Snapshot:
        return parsed(server_like(steps, leak_every=leak_every).snapshot())

    leaking = compare([at(500, 5), at(1000, 5), at(1500, 5)], ["a", "b", "c"]).devices[0]
    assert leaking.findings[0].level == "bad"
    assert leaking.sites[0].steady
    busy = compare([at(500, 0), at(1000, 0), at(1500, 0)], ["a", "b", "c"]).devices[0]
    assert not any(finding.level == "bad" for finding in busy.findings)
    assert not any(row.steady for row in busy.sites)


def test_a_jump_between_two_of_three_files_is_no_steady_growth() -> None:
    before, after = parsed(server_like(1000).snapshot()), parsed(server_like(1000, leak_every=10).snapshot())
    (device,) = compare([before, before, after], ["a", "b", "c"]).devices
    assert device.findings[0].level == "note"
    assert "did not grow in every step" in device.findings[0].sentence


def test_the_same_file_twice_has_no_change() -> None:
    one = parsed(server_like(300).snapshot())
    (device,) = compare([one, one], ["a", "a"]).devices
    assert (device.gained, device.lost, device.sites) == (0, 0, ())
    assert [finding.level for finding in device.findings] == ["good"]


def test_two_devices_are_kept_apart() -> None:
    first, second = AllocatorBed(0), AllocatorBed(1)
    first.alloc(64 * MIB, stacks(1)[0])
    second.alloc(128 * MIB, stacks(1)[0])
    raw = second.snapshot()
    raw["segments"] += first.snapshot()["segments"]
    raw["device_traces"][0] = first.trace
    one, two = analyse(parsed(raw), "x").devices
    assert (one.device, one.usage.reserved, two.device, two.usage.reserved) == (0, 64 * MIB, 1, 128 * MIB)
    assert two.trace is not None
    assert two.trace.open_total == 128 * MIB
