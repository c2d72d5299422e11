"""A comparison for terminals, readable in 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.retained import count_of
from agent.snapshot.compare import Comparison, DeviceChange
from agent.snapshot.text import finding_line, grid
from agent.units import human_bytes

SHOWN = 12
FILES_SHOWN = 4  # columns of a table


def render(comparison: Comparison) -> RenderableType:
    """Return what changed, device by device."""
    names = [Text(f"{n}: {file}", style="bold") for n, file in enumerate(comparison.files, start=1)]
    return Group(*names, *(_device(change) for change in comparison.devices))


def signed(size: int) -> str:
    """Return a change of bytes with its sign."""
    return f"{'-' if size < 0 else '+'}{human_bytes(abs(size))}"


def _device(change: DeviceChange) -> RenderableType:
    body: list[RenderableType] = [finding_line(finding) for finding in change.findings]
    body += [Text(), _sums(change), Text()]
    body.append(
        Text(
            f"New: {count_of(change.gained, 'segment')} ({human_bytes(change.gained_size)}); gone: {change.lost:,} "
            f"({human_bytes(change.lost_size)})."
        )
    )
    if change.sites:
        body += [Text(), _sites(change)]
    return Panel(Group(*body), title=f"device {change.device}: the last against the first", title_align="left")


def _sums(change: DeviceChange) -> Table:
    picked = _picked(len(change.usages))
    table = grid(("",), (*(f"{n + 1}" for n in picked), "change"))
    for name in ("reserved", "allocated", "awaiting", "inactive", "largest_free"):
        values = [getattr(usage, name) for usage in change.usages]
        shown = (human_bytes(values[n]) for n in picked)
        table.add_row(name.replace("_", " ").replace("inactive", "free"), *shown, signed(values[-1] - values[0]))
    ratios = [usage.fragmentation for usage in change.usages]
    first, last = ratios[0], ratios[-1]
    grown = "-" if first is None or last is None else f"{100 * (last - first):+.0f} points"
    shown = ("-" if (ratio := ratios[n]) is None else f"{ratio:.0%}" for n in picked)
    table.add_row("fragmentation", *shown, grown)
    return table


def _sites(change: DeviceChange) -> Table:
    picked = _picked(len(change.usages))
    table = grid(("in use by",), (*(f"{n + 1}" for n in picked), "change", "blocks"))
    for row in change.sites[:SHOWN]:
        shown = (human_bytes(row.sizes[n]) for n in picked)
        style = "#d55e00" if row.steady else ""
        table.add_row(Text(row.site.label, style), *shown, signed(row.grown), f"{row.count_grown:+,}")
    left = sum(row.grown for row in change.sites[SHOWN:]) + change.sites_rest
    if len(change.sites) > SHOWN:
        table.add_row("others", *("" for _ in picked), signed(left), style="dim")
    return table


def _picked(files: int) -> list[int]:
    """Return which files have a column: the first and the last ones."""
    return list(range(files)) if files <= FILES_SHOWN else [0, *range(files - FILES_SHOWN + 1, files)]
