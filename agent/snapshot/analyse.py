"""From a snapshot to its report. Pure: the same snapshot gives the same report."""

from __future__ import annotations

import msgspec

from agent.snapshot import gaps, oom, sites, usage
from agent.snapshot.findings import findings, steady
from agent.snapshot.model import DEFAULT_POOL, Segment, Snapshot, Stacks, TraceFacts
from agent.snapshot.report import DeviceReport, Open, Report, TraceReport, Usage

KEPT = 40  # rows of a list of sites


def analyse(snapshot: Snapshot, file: str) -> Report:
    """Return the report of ``snapshot``, which was read from ``file``."""
    by_device: dict[int, list[Segment]] = {}
    for segment in snapshot.segments:
        by_device.setdefault(segment.device, []).append(segment)
    traces = {trace.device: trace for trace in snapshot.traces}
    devices = sorted({*by_device, *traces})
    return Report(
        file=file,
        devices=tuple(
            _device(device, by_device.get(device, []), traces.get(device), snapshot.stacks) for device in devices
        ),
        settings=snapshot.settings,
        notes=snapshot.notes,
    )


def _device(device: int, segments: list[Segment], trace: TraceFacts | None, stacks: Stacks) -> DeviceReport:
    common = [segment for segment in segments if segment.pool == DEFAULT_POOL]
    live = sites.live(segments, stacks)
    # The gaps of a private pool are its graph's own: they are used at each replay.
    holders = gaps.holders(common, stacks)
    whole, of_common = usage.usage(segments), usage.usage(common)
    report = DeviceReport(
        device=device,
        usage=whole,
        common=of_common,
        pools=usage.pools(segments),
        bands=usage.bands(segments),
        live=tuple(live[:KEPT]),
        live_rest=sum(site.size for site in live[KEPT:]),
        holders=tuple(holders[:KEPT]),
        holders_rest=sum(holder.share for holder in holders[KEPT:]),
        what_if=gaps.what_if(segments),
        trace=None if trace is None else _trace(trace, stacks, of_common, whole),
        findings=(),
    )
    return msgspec.structs.replace(report, findings=findings(report))


def _trace(trace: TraceFacts, stacks: Stacks, common: Usage, whole: Usage) -> TraceReport:
    frames = stacks.frames
    rows = [
        Open(site=sites.site_of(frames[row.site], row.count, row.size), allocations=row.allocations, tenths=row.tenths)
        for row in trace.open_sites
    ]
    # What looks like a leak first, then by size: weights are the largest that does not end, and as it should be.
    rows.sort(key=lambda row: (not steady(row), -row.site.size))
    return TraceReport(
        entries=trace.entries,
        seconds=trace.seconds,
        actions=trace.actions,
        open=tuple(rows[:KEPT]),
        open_total=sum(row.size for row in trace.open_sites),
        busiest=tuple(sites.site_of(frames[row.site], row.count, row.size) for row in trace.busy_sites[:KEPT]),
        awaiting=trace.awaiting_size,
        ooms=tuple(
            oom.judge(event, common, whole, sites.site_label(frames[stacks.sites[event.stack]])) for event in trace.ooms
        ),
        ooms_total=trace.ooms_total,
    )
