"""Where each GPU's memory is, for terminals: a bar, then the parts in numbers, then what can't be told."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.faces.lines import BAD
from agent.sources.device.state import GpuState
from agent.state import AgentState
from agent.units import human_bytes
from agent.waterfall.build import summed
from agent.waterfall.state import Part, Waterfall

BAR_WIDTH = 72
DIM, WARN = "dim", "yellow"
# Name for people, letter in the bar, colour (of Okabe and Ito); the order is that of the bar and the table.
WORDS = {
    "weights": ("weights", "W", "#cc79a7"),
    "kv_held": ("KV held", "#", "#0072b2"),
    "kv_cached_idle": ("KV cached idle", "+", "#56b4e9"),
    "kv_empty": ("KV empty", "-", "#56b4e9"),
    "kv_unsplit": ("KV cache", "#", "#0072b2"),
    "graphs": ("CUDA graphs", "G", "#e69f00"),
    "torch_active": ("torch, in use", "T", "#009e73"),
    "torch_inactive": ("torch, fragmented", "f", "#f0e442"),
    "context": ("CUDA context, NCCL", "C", "#e69f00"),
    "other_processes": ("other processes", "O", "#d55e00"),
    "driver": ("driver", "D", "grey50"),
    "free": ("free", ".", "grey50"),
}
UNATTRIBUTED = ("unattributed", "?", BAD)


def render(state: AgentState) -> RenderableType:
    """Return the waterfalls of all GPUs, or why there is none."""
    names = {one.gpu: one for gpu in (state.device.gpus if state.device else ()) for one in (gpu, *gpu.instances)}
    panels = [_panel(waterfall, names.get(waterfall.gpu)) for waterfall in state.waterfalls]
    if panels:
        return Group(*panels)
    reason = next((source.reason for source in state.sources if source.source == "device"), "sources.device is off")
    return Text(f"No waterfall: {reason or 'no GPU that works was found'}.", style=WARN)


def _panel(waterfall: Waterfall, gpu: GpuState | None) -> RenderableType:
    total = waterfall.total_bytes
    size = "" if total is None else f"  {human_bytes(total)}"
    title = Text(f"GPU {waterfall.gpu}  {gpu.name or '' if gpu else ''}{size}")
    parts = sorted(summed(waterfall.parts), key=lambda part: list(WORDS).index(part.part))
    body: list[RenderableType] = []
    if total:
        body.append(_bar(parts, waterfall.unattributed_bytes or 0, total))
    body.append(_table(waterfall, parts))
    body += [Text(f"{reason[0].upper()}{reason[1:]}.", style=WARN) for reason in waterfall.reasons]
    return Panel(Group(*body), title=title, title_align="left", border_style="grey50")


def _bar(parts: list[Part], unattributed: int, total: int) -> Text:
    """Draw the parts to scale: each that is not zero gets a cell at least, at the cost of the largest."""
    pieces = [(*WORDS[part.part][1:], part.bytes) for part in parts]
    pieces.append((*UNATTRIBUTED[1:], unattributed))
    cells = [max(1, round(BAR_WIDTH * size / total)) if size > 0 else 0 for *_, size in pieces]
    if any(cells):
        cells[cells.index(max(cells))] += BAR_WIDTH - sum(cells)
    text = Text()
    for (letter, colour, _), number in zip(pieces, cells, strict=True):
        text.append(letter * max(0, number), style=colour)
    return text


def _table(waterfall: Waterfall, parts: list[Part]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for justify in ("left", "left", "left", "right", "right", "left"):
        table.add_column(justify=justify)
    for part in parts:
        name, letter, colour = WORDS[part.part]
        table.add_row(
            Text(letter, style=colour), name, Text(part.owner), *_numbers(part.bytes, part.error_bytes, waterfall)
        )
    if waterfall.unattributed_bytes is not None:
        name, letter, colour = UNATTRIBUTED
        numbers = _numbers(waterfall.unattributed_bytes, waterfall.error_bytes, waterfall)
        table.add_row(Text(letter, style=colour), name, "", *numbers)
    return table


def _numbers(size: int, error: int, waterfall: Waterfall) -> Iterator[str]:
    yield human_bytes(size) if size >= 0 else f"-{human_bytes(-size)}"
    yield "" if not waterfall.total_bytes else f"{size / waterfall.total_bytes:.1%}"
    yield f"+- {human_bytes(error)}" if error else ""
