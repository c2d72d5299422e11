"""An engine's detail as a compact block for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from agent.faces.lines import Line, largest, share_of
from engine_hooks.detail import Detail, TenantRow


def table(lines: Sequence[Line]) -> Table | None:
    """Return ``lines`` in two columns, or None when there are none."""
    grid = _grid(lines)
    return grid if grid.row_count else None


def block(detail: Detail, lines: Sequence[Line]) -> RenderableType | None:
    """Return ``lines`` and the largest tenants as a block, or None when there is nothing to say."""
    grid = _grid(lines)
    shown, rest = largest(detail.tenants)
    if shown:
        grid.add_row(Text("tenants", style="bold"), _tenants(shown, rest))
    return grid if grid.row_count else None


def _grid(lines: Sequence[Line]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    previous = ""
    for label, text, style in lines:
        # Text, for a plain string would be read as rich markup.
        grid.add_row(Text("" if label == previous else label, style="bold"), Text(text, style=style))
        previous = label
    return grid


def _tenants(shown: list[TenantRow], rest: list[TenantRow]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("tenant", overflow="fold", max_width=24)
    rows = [_numbers(row) for row in shown]
    for number, name in enumerate(("blocks", "running", "waiting", "tokens", "preempted", "sessions")):
        # Where there is no room it is the name that goes on in the next line, and never a number that is cut.
        widest = max(len(name), *(len(cells[number]) for cells in rows))
        table.add_column(name, justify="right", no_wrap=True, min_width=widest)
    for row, cells in zip(shown, rows, strict=True):
        table.add_row(Text(row.tenant), *cells)
    if rest:
        table.add_row(f"{len(rest)} more", f"{sum(row.held or 0 for row in rest):,.0f}", style="dim")
    return table


def _numbers(row: TenantRow) -> tuple[str, ...]:
    return (
        share_of(row),
        f"{row.running:,}",
        f"{row.waiting:,}",
        f"{row.prompt_tokens_total + row.generated_tokens_total:,}",
        f"{row.preempted_total:,}",
        f"{row.sessions:,}",
    )
