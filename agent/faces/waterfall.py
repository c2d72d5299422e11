"""Where each GPU's memory is, for terminals: a bar, then the parts in numbers, then what can't be told."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
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
WARN = "yellow"
# Name for people, letter in the bar, colour (of Okabe and Ito); the order is that of the bar and the table.
WORDS = {
    "weights": ("weights", "W", "#cc79a7"),
    "draft_model": ("draft model", "M", "#cc79a7"),
    "lora": ("LoRA slots", "L", "#cc79a7"),
    "kv_held": ("KV held", "#", "#0072b2"),
    "kv_cached_idle": ("KV cached idle", "+", "#56b4e9"),
    "kv_empty": ("KV empty", "-", "#56b4e9"),
    "kv_unsplit": ("KV cache", "K", "#0072b2"),
    "encoder_cache": ("encoder cache", "E", "#009e73"),
    "graphs": ("CUDA graphs", "G", "#e69f00"),
    "torch_active": ("torch, other use", "T", "#009e73"),
    "torch_inactive": ("torch, fragmented", "f", "#f0e442"),
    "context": ("context, libraries", "C", "#e69f00"),
    "untold": ("not told", "U", "#d55e00"),
    "other_processes": ("other processes", "O", "#d55e00"),
    "driver": ("driver", "D", "grey50"),
    "free": ("free", ".", "grey50"),
}
RARE = ("draft_model", "lora", "encoder_cache")  # shown where there is any
OTHERS = "other_processes"
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
    if total and any(part.bytes for part in parts):
        body.append(_bar(parts, waterfall.unattributed_bytes or 0, total))
    body.append(_table(waterfall, parts))
    body += [Padding(Text(f"{reason}.", style=WARN), (0, 0, 0, 3)) for reason in waterfall.reasons]
    return Panel(Group(*body), title=title, title_align="left", border_style="grey50")


def _bar(parts: list[Part], unattributed: int, total: int) -> Text:
    """Draw the parts to scale: each that is not zero gets a cell at least, at the cost of the largest."""
    sizes: dict[tuple[str, str], int] = {}
    for part in parts:
        look = WORDS[part.part][1:]
        sizes[look] = sizes.get(look, 0) + part.bytes
    sizes[UNATTRIBUTED[1:]] = max(0, unattributed)
    whole = max(total, sum(sizes.values()))  # the parts may claim more than there is
    cells = {look: max(1, round(BAR_WIDTH * size / whole)) for look, size in sizes.items() if size}
    cells[max(cells, key=lambda look: cells[look])] += BAR_WIDTH - sum(cells.values())
    text = Text()
    for (letter, colour), number in cells.items():
        text.append(letter * number, style=colour)
    return text


def _table(waterfall: Waterfall, parts: list[Part]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), show_header=False)
    for justify in ("left", "left", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True)
    table.add_column()  # the only one that gives way
    for part in parts:
        if part.bytes or part.part not in RARE:
            whose = f"{part.count} process{'' if part.count == 1 else 'es'}" if part.part == OTHERS else part.owner
            table.add_row(
                *_row(WORDS[part.part], part.bytes, part.error_bytes, waterfall),
                Text(whose, no_wrap=True, overflow="ellipsis"),
            )
    if waterfall.unattributed_bytes is not None:
        table.add_row(*_row(UNATTRIBUTED, waterfall.unattributed_bytes, waterfall.error_bytes, waterfall), "")
    return table


def _row(
    words: tuple[str, str, str], size: int, error: int, waterfall: Waterfall
) -> tuple[RenderableType, str, str, str, str]:
    name, letter, colour = words
    share = "" if not waterfall.total_bytes else f"{size / waterfall.total_bytes:.1%}"
    return Text(letter, style=colour), name, human_bytes(size), share, f"± {human_bytes(error)}" if error else ""
