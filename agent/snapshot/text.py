"""A report for terminals, readable in 100 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.retained import count_of
from agent.snapshot.findings import steady
from agent.snapshot.report import DeviceReport, Finding, PoolRow, Report, Site, TraceReport, Usage
from agent.snapshot.usage import BAND_LOW
from agent.units import human_bytes, human_seconds

SHOWN = 8
BAR = 36
SUMS_BAR = 76  # a terminal's 80 columns without the frame
# Okabe and Ito's colours; the letters say the same without any.
BLUE = "#0072b2"
PARTS = (("allocated", "#", BLUE), ("awaiting free", "~", "#e69f00"), ("free", ".", "grey50"))
_LEVELS = {"bad": ("!", "bold #d55e00"), "note": ("-", ""), "good": ("+", "#009e73")}


def render(report: Report) -> RenderableType:
    """Return the report of one file."""
    parts: list[RenderableType] = [Text(report.file, style="bold")]
    parts += [_device(device, report.settings) for device in report.devices]
    if not report.devices:
        parts.append(Text("The snapshot holds no segment and no trace."))
    parts += [Text(f"note: {note}", style="dim") for note in report.notes]
    return Group(*parts)


def _device(report: DeviceReport, settings: dict[str, str]) -> RenderableType:
    body: list[RenderableType] = [finding_line(finding) for finding in report.findings]
    body += [Text(), bar(report.usage), numbers(report.usage), Text()]
    if set_to := settings.get("PYTORCH_CUDA_ALLOC_CONF"):
        body.append(Text(f"PYTORCH_CUDA_ALLOC_CONF={set_to}", style="dim"))
    body += [_pools(report.pools), Text(), _bands(report)]
    if report.live:
        body += [Text(), site_table("held by", report.live, report.live_rest)]
    if report.holders:
        body += [Text(), _holders(report)]
    body += [Text(), _what_if(report)]
    if report.trace:
        body += [Text(), *_trace(report.trace)]
    return Panel(Group(*body), title=f"device {report.device}", title_align="left")


def finding_line(finding: Finding) -> Text:
    """Return a finding as a line; its sign says how bad it is."""
    sign, style = _LEVELS[finding.level]
    return Text(f"{sign} {finding.sentence}", style=style)


def bar(usage: Usage) -> Text:
    """Return the parts of what is reserved as one bar with its legend."""
    sizes = (usage.allocated, usage.awaiting, usage.inactive)
    line = Text()
    if usage.reserved:
        ends = [round(SUMS_BAR * sum(sizes[: n + 1]) / usage.reserved) for n in range(3)]
        begun = 0
        for (_, letter, style), end in zip(PARTS, ends, strict=True):
            line.append(letter * (end - begun), style=style)
            begun = end
        line.append("\n")
    for n, ((name, letter, style), size) in enumerate(zip(PARTS, sizes, strict=True)):
        line.append(f"{'  ' if n else ''}{letter} {name} {human_bytes(size)}", style=style)
    return line


def numbers(usage: Usage) -> Text:
    """Return the ratios in a line or two."""
    parts = [f"reserved {human_bytes(usage.reserved)} in {count_of(usage.segments, 'segment')}"]
    if usage.overcommit is not None:
        parts.append(f"overcommit {usage.overcommit:.2f}")
    if usage.fragmentation is not None and usage.contiguity is not None:
        parts.append(f"fragmentation {usage.fragmentation:.0%}, contiguity {usage.contiguity:.0%}")
    parts.append(f"largest free block {human_bytes(usage.largest_free)}")
    parts.append(f"lost to rounding {human_bytes(max(0, usage.allocated - usage.requested))}")
    return Text("; ".join(parts))


def _pools(pools: Sequence[PoolRow]) -> RenderableType:
    columns = ("reserved", "allocated", "awaiting", "free", "largest free", "frag.")
    table = grid(("pool", "stream"), columns)
    for row in pools[:SHOWN]:
        usage = row.usage
        name = f"{'common' if row.pool == (0, 0) else f'private {row.pool[0]},{row.pool[1]}'} {row.kind}"
        table.add_row(
            Text(f"{name}{' expandable' if row.expandable else ''}"),
            f"{row.stream:#x}" if row.stream else "0",
            *map(human_bytes, (usage.reserved, usage.allocated, usage.awaiting, usage.inactive, usage.largest_free)),
            "-" if usage.fragmentation is None else f"{usage.fragmentation:.0%}",
        )
    if rest := pools[SHOWN:]:
        table.add_row(f"{len(rest):,} more", "", human_bytes(sum(row.usage.reserved for row in rest)), style="dim")
    return table


def _bands(report: DeviceReport) -> RenderableType:
    table = grid(("free blocks of",), ("count", "bytes"), last="")
    most = max(band.size for band in report.bands) or 1
    for band in report.bands:
        if not band.count and band.low != BAND_LOW:
            continue
        upper = "more" if band.high is None else human_bytes(band.high).replace(".0 ", " ")
        name = f"{human_bytes(band.low).replace('.0 ', ' ')} to {upper}"
        marked = "bold" if band.low == BAND_LOW else ""
        length = max(1, round(BAR * band.size / most)) if band.size else 0
        table.add_row(
            Text(name, style=marked), f"{band.count:,}", human_bytes(band.size), Text("#" * length, "#0072b2")
        )
    return table


def site_table(title: str, sites: Sequence[Site], rest: int, shown: int = SHOWN) -> Table:
    """Return call sites with what they hold."""
    table = grid((title,), ("bytes", "blocks"))
    for site in sites[:shown]:
        table.add_row(Text(site.label), human_bytes(site.size), f"{site.count:,}")
    left = sum(site.size for site in sites[shown:]) + rest
    if left:
        table.add_row("others", human_bytes(left), "", style="dim")
    return table


def _holders(report: DeviceReport) -> RenderableType:
    table = grid(("who pins free space",), ("share", "alone", "holds", "segments"))
    for row in report.holders[:SHOWN]:
        sizes = map(human_bytes, (row.share, row.alone, row.site.size))
        table.add_row(Text(row.site.label), *sizes, f"{row.segments:,}")
    left = sum(row.share for row in report.holders[SHOWN:]) + report.holders_rest
    if left:
        table.add_row("others", human_bytes(left), style="dim")
    return table


def _what_if(report: DeviceReport) -> Text:
    gain = report.what_if
    if gain.already_expandable and not gain.gaps:
        return Text("Segments are expandable already.")
    text = (
        f"empty_cache() would give back {human_bytes(gain.now)} now. With expandable_segments:True this layout would "
    )
    text += f"give back {human_bytes(gain.low)} (torch's pages) to {human_bytes(gain.high)} (2 MiB pages) more, of "
    return Text(f"{text}{human_bytes(gain.gaps)} in gaps; it would also have been another layout.")


def _trace(trace: TraceReport) -> list[RenderableType]:
    span = "" if trace.seconds is None else f" over {human_seconds(trace.seconds)}"
    names = ", ".join(f"{count:,} {name}" for name, count in sorted(trace.actions.items()))
    parts: list[RenderableType] = [Text(f"Trace of {trace.entries:,} entries{span}: {names}.")]
    if trace.open:
        table = grid(("allocated in the trace, not ended",), ("bytes", "open", "allocated", "in tenths"))
        for row in trace.open[:SHOWN]:
            counts = (f"{row.site.count:,}", f"{row.allocations:,}", f"{row.tenths}")
            style = "#d55e00" if steady(row) else ""
            table.add_row(Text(row.site.label, style), human_bytes(row.site.size), *counts)
        parts.append(table)
    if trace.busiest:
        parts += [Text(), site_table("allocates most", trace.busiest, 0, shown=4)]
    parts += [Text(f"out of memory at {oom.site}: {oom.sentence}", style="#d55e00") for oom in trace.ooms[-3:]]
    return parts


def grid(left: Sequence[str], right: Sequence[str], last: str | None = None) -> Table:
    """Return a table without lines: the first column folds, numbers stand to the right."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for n, name in enumerate(left):
        table.add_column(name, overflow="fold", no_wrap=bool(n))
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    if last is not None:
        table.add_column(last)
    return table
