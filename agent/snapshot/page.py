"""A report as one page that needs nothing from outside: no address in it is ever fetched, and a policy forbids it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape

from agent.retained import count_of
from agent.snapshot.compare import Comparison, DeviceChange
from agent.snapshot.flame import flame
from agent.snapshot.model import Segment, Snapshot, Stacks
from agent.snapshot.report import DeviceReport, Finding, Report
from agent.snapshot.segment_map import segment_map
from agent.snapshot.styles import SCRIPT, STYLE
from agent.snapshot.usage import BAND_LOW
from agent.units import human_bytes

SHOWN = 15


def page(snapshot: Snapshot, report: Report, comparison: Comparison | None = None) -> str:
    """Return the page: findings, sums, map and flame graph by device. All text of the snapshot is escaped."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{escape(report.file)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(report.file)}</h1>",
    ]
    if comparison is not None:
        parts += [_change(change, comparison.files) for change in comparison.devices]
    for device in report.devices:
        segments = [segment for segment in snapshot.segments if segment.device == device.device]
        parts.append(_device(device, segments, snapshot.stacks))
    if report.notes:
        parts.append(f"<h2>Notes</h2><ul>{''.join(f'<li>{escape(note)}</li>' for note in report.notes)}</ul>")
    parts.append(f"<script>{SCRIPT}</script></body></html>\n")
    return "\n".join(parts)


def _device(report: DeviceReport, segments: Sequence[Segment], stacks: Stacks) -> str:
    usage = report.usage
    picture, fire = segment_map(segments, stacks), flame(segments, stacks)
    facts = [
        ("reserved", human_bytes(usage.reserved)),
        ("allocated", human_bytes(usage.allocated)),
        ("awaiting free", human_bytes(usage.awaiting)),
        ("free", human_bytes(usage.inactive)),
        ("largest free block", human_bytes(usage.largest_free)),
        ("fragmentation", _ratio(usage.fragmentation)),
        ("overcommit", "-" if usage.overcommit is None else f"{usage.overcommit:.2f}"),
    ]
    map_says = (
        f"Each row is one of {count_of(picture.segments, 'segment')}, in each pool those with most free space first."
    )
    if picture.folded:
        map_says += f" {picture.folded:,} blocks are too narrow and drawn together."
    if picture.left_out:
        map_says += f" Not drawn: {count_of(picture.left_out, 'segment')} ({human_bytes(picture.left_out_size)})."
    fire_says = (
        f"{human_bytes(fire.size)} in use by call stack, the outermost frame at the top; click to zoom in or out."
    )
    if fire.folded:
        fire_says += f" {human_bytes(fire.folded)} are in frames too narrow or too many to draw."
    gain = report.what_if
    parts = [
        f"<h2>Device {report.device}</h2>",
        _findings(report.findings),
        '<div class="facts">' + "".join(f"<div><b>{value}</b>{name}</div>" for name, value in facts) + "</div>",
        "<h3>Segments</h3>",
        '<p class="legend"><i class="a"></i>in use <i class="w"></i>waits for another stream <i class="f"></i>free '
        f'<i class="m"></i>several small blocks of both. {escape(map_says)}</p>',
        picture.svg,
        f"<h3>Flame graph</h3><p>{escape(fire_says)}</p>{fire.svg}",
        "<h3>Sizes of free blocks</h3>",
        _bands(report),
        '<div class="columns"><div><h3>Held by</h3>',
        _table(
            ("call site", "bytes", "blocks"),
            [(site.label, human_bytes(site.size), f"{site.count:,}") for site in report.live[:SHOWN]],
        ),
        "</div><div><h3>Who pins free space</h3>",
        _table(
            ("call site", "share", "alone", "segments"),
            [
                (row.site.label, human_bytes(row.share), human_bytes(row.alone), f"{row.segments:,}")
                for row in report.holders[:SHOWN]
            ],
        ),
        "</div></div>",
        f"<p>empty_cache() would give back {human_bytes(gain.now)} now; expandable segments {human_bytes(gain.low)} to "
        f"{human_bytes(gain.high)} more, of {human_bytes(gain.gaps)} in gaps of the common pool.</p>",
    ]
    if report.trace and report.trace.open:
        rows = [
            (row.site.label, human_bytes(row.site.size), f"{row.site.count:,}", f"{row.allocations:,}", f"{row.tenths}")
            for row in report.trace.open[:SHOWN]
        ]
        parts.append("<h3>Allocated in the trace, not ended</h3>")
        parts.append(_table(("call site", "bytes", "open", "allocated", "tenths of the trace"), rows))
    return "\n".join(parts)


def _bands(report: DeviceReport) -> str:
    most = max(band.size for band in report.bands) or 1
    rows = []
    for band in report.bands:
        upper = "more" if band.high is None else human_bytes(band.high).replace(".0 ", " ")
        name = f"{human_bytes(band.low).replace('.0 ', ' ')} to {upper}"
        css = ' class="marked"' if band.low == BAND_LOW else ""
        rows.append(
            f'<tr{css}><td>{name}</td><td class="n">{band.count:,}</td><td class="n">{human_bytes(band.size)}</td>'
            f'<td><svg class="bar" viewBox="0 0 300 10" width="300" height="10"><rect class="a" width="'
            f'{300 * band.size / most:.1f}" height="10"></rect></svg></td></tr>'
        )
    head = '<tr><th>size</th><th class="n">blocks</th><th class="n">bytes</th><th></th></tr>'
    return f"<table>{head}{''.join(rows)}</table>"


def _change(change: DeviceChange, files: Sequence[str]) -> str:
    rows = [
        (row.site.label, *(human_bytes(size) for size in row.sizes), _signed(row.grown), f"{row.count_grown:+,}")
        for row in change.sites[:SHOWN]
    ]
    names = ", ".join(f"{n}: {file}" for n, file in enumerate(files, start=1))
    columns = ("call site", *(f"{n}" for n in range(1, len(files) + 1)), "change", "blocks")
    new = f"New: {count_of(change.gained, 'segment')} ({human_bytes(change.gained_size)}); gone: {change.lost:,}."
    return (
        f"<h2>Device {change.device}: what changed</h2><p>{escape(names)}. {new}</p>{_findings(change.findings)}"
        f"{_table(columns, rows)}"
    )


def _findings(findings: Iterable[Finding]) -> str:
    rows = "".join(f'<li class="{finding.level}">{escape(finding.sentence)}</li>' for finding in findings)
    return f'<ul class="findings">{rows}</ul>'


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return "<p>None.</p>"
    head = "".join(f"<th{_css(n)}>{escape(name)}</th>" for n, name in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(f'<td{_css(n)}>{escape(text)}</td>' for n, text in enumerate(row))}</tr>" for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _css(column: int) -> str:
    return ' class="n"' if column else ""


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _signed(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{human_bytes(abs(size))}"
