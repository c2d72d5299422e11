"""The GPUs for terminals: what is wrong with them in sentences, then a table of their memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.faces.lines import BAD, Line
from agent.sharing import sharings
from agent.sources.device.names import XIDS
from agent.sources.device.state import DevicesState, GpuState, Xid
from agent.state import AgentState

LINES_SHOWN = 12
OLD_SECONDS = 86_400.0  # an XID of before is history
LOST_REMEDY = "What ran on it has failed. The kernel's log (dmesg) says why; a reboot may bring it back."
SILENT_REMEDY = "nvidia-smi hangs likely, too; the kernel's log (dmesg) may say why."
COLUMNS = ("GPU", "used GiB", "", "free", "total", "reserved", "processes", "busy", "name")
GOOD, WARN, DIM = "#009e73", "yellow", "dim"
# Clocks held down for these are a fault of cooling or power; the others belong to a healthy card.
_HARMFUL = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "reliability"}


def render(state: AgentState) -> RenderableType | None:
    """Return the GPUs, or why they are not read; None where that is not asked for."""
    if state.device is not None:
        return _panel(state.device, shared_lines(state), state.at)
    why = absent(state)
    return Text(why, style=DIM) if why else None


def any_gpu(state: AgentState) -> bool:
    """Whether the driver knows a GPU here."""
    return state.device is not None and bool(state.device.gpus)


def absent(state: AgentState) -> str:
    """Say why GPUs are not read; empty where that is not asked for."""
    return next((f"GPUs are not read: {row.reason}." for row in state.sources if row.source == "device"), "")


def driver_of(devices: DevicesState) -> str:
    """Return the versions of the driver and of the newest CUDA that it speaks."""
    return f"driver {devices.driver or 'not known'}, CUDA {devices.cuda_driver or 'not known'}"


def lines_of(gpus: tuple[GpuState, ...], now: float) -> list[Line]:
    """Return what there is to say at ``now``, what several GPUs share once, the worst first."""
    found: dict[tuple[str, str], list[str]] = {}
    for gpu in gpus:
        for each in (gpu, *gpu.instances):
            for text, style in _said(each, now):
                found.setdefault((text, style), []).append(each.gpu)
    lines = [Line(_label(labels), text, style) for (text, style), labels in found.items()]
    lines.sort(key=lambda line: (BAD, WARN, DIM).index(line.style))
    if rest := lines[LINES_SHOWN:]:
        lines = [*lines[:LINES_SHOWN], Line("", f"and {len(rest)} more: see kvtide status --json", DIM)]
    return lines


def _said(gpu: GpuState, now: float) -> Iterator[tuple[str, str]]:
    if gpu.lost:
        who = f" ({gpu.name}, {gpu.uuid})" if gpu.uuid else ""
        yield f"LOST: {gpu.lost}{who}. {LOST_REMEDY}", BAD
    elif gpu.silent:
        yield f"NOT ANSWERING: {gpu.silent}. {SILENT_REMEDY}", BAD
    for xid in sorted(gpu.xids or (), key=lambda xid: -xid.last_at):
        yield _xid(xid), BAD if gpu.lost else WARN if now - xid.last_at < OLD_SECONDS else DIM
    if gpu.lost or gpu.silent:
        return
    reasons: dict[str, list[str]] = {}
    for field, reason in gpu.unavailable.items():
        reasons.setdefault(reason, []).append(field.replace("_", " "))
    for reason, fields in reasons.items():
        yield f"not read: {', '.join(fields)}: {reason}", WARN
    yield from _health(gpu)
    if gpu.unified:
        yield "shares the host's memory: it has none of its own to show", DIM


def _health(gpu: GpuState) -> Iterator[tuple[str, str]]:
    if rows := gpu.remapped_rows:
        if rows.failed:
            yield "no spare rows of memory are left: replace the card", BAD
        if rows.pending:
            yield "bad rows of memory are replaced at the next reset: reset the GPU when it can be spared", WARN
    if gpu.retired_pages and gpu.retired_pages.pending:
        yield "bad pages of memory go out of use at the next reset: reset the GPU when it can be spared", WARN
    if gpu.ecc and gpu.ecc.uncorrected:
        yield f"{gpu.ecc.uncorrected:,} uncorrected memory errors since the driver was loaded", WARN
    if harmful := [reason for reason in gpu.throttle or () if reason in _HARMFUL]:
        yield f"slowed down: {', '.join(harmful)}", WARN


def _xid(xid: Xid) -> str:
    name = f"XID {xid.code}" if xid.code else "other XIDs"
    meaning = f" ({XIDS[xid.code]})" if xid.code in XIDS else ""
    at = time.strftime("%b %d %H:%M:%S", time.localtime(xid.last_at))
    return f"{name}{meaning}, " + (f"{xid.count:,} times, last {at}" if xid.count > 1 else f"once, {at}")


def _label(labels: list[str]) -> str:
    """Return the labels with runs shortened: ``GPUs 0-3, 6``."""
    runs: list[list[str]] = []
    for label in labels:
        if runs and label.isdigit() and runs[-1][-1].isdigit() and int(label) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], label]
        else:
            runs.append([label])
    return f"GPU{'s' if len(labels) > 1 else ''} {', '.join('-'.join(run) for run in runs)}"


def shared_lines(state: AgentState) -> list[Line]:
    """Return which GPUs of our engines others use, too."""
    told = [each for each in sharings(state) if each.owners and each.shared]
    return [Line(_label([each.gpu]), f"{each}: levers need actions.shared_gpu there", DIM) for each in told]


def _panel(devices: DevicesState, shared: list[Line], now: float) -> RenderableType:
    lines = [*lines_of(devices.gpus, now), *shared]
    worst = lines[0].style if lines else GOOD
    body: list[RenderableType] = []
    if lines:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(max_width=20, overflow="fold")
        grid.add_column(overflow="fold")
        for label, text, style in lines:
            grid.add_row(Text(label, style="bold"), Text(text, style=style))
        body.append(grid)
    body.append(_table(devices.gpus) if devices.gpus else Text("The driver knows no GPU."))
    colour = GOOD if worst == DIM else worst
    return Panel(Group(*body), title=Text(f"GPUs  {driver_of(devices)}"), title_align="left", border_style=colour)


def _table(gpus: tuple[GpuState, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column(COLUMNS[0], no_wrap=True)
    for name in COLUMNS[1:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(COLUMNS[-1], no_wrap=True, overflow="ellipsis")
    for gpu in gpus:
        table.add_row(*row_of(gpu), style="" if gpu.up else BAD)
        for instance in gpu.instances:
            table.add_row(*row_of(instance), style=DIM if instance.up else BAD)
    return table


def row_of(gpu: GpuState) -> tuple[str, ...]:
    """Return a GPU's cells under :data:`COLUMNS`."""
    memory = gpu.memory
    sizes = ("-", "", "-", "-", "-") if gpu.up else ("lost" if gpu.lost else "silent", "", "-", "-", "-")
    if memory:
        share = f"{memory.used / memory.total:.0%}"
        sizes = (_gib(memory.used), share, _gib(memory.free), _gib(memory.total), _gib(memory.reserved))
    processes = f"{gpu.processes.count:,}" if gpu.processes else "-"
    busy = f"{gpu.utilisation.gpu:.0%}" if gpu.utilisation else "-"
    return gpu.gpu, *sizes, processes, busy, (gpu.name or "").removeprefix("NVIDIA ")


def _gib(size: int | None) -> str:
    return "-" if size is None else f"{size / (1 << 30):,.1f}"
