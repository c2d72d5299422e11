"""A replay for terminals, readable in 100 columns."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agent.replay.result import GpuResult, Replay
from agent.retained import count_of
from agent.units import human_bytes, human_seconds

HEIGHT = 6  # lines of a plot
_EIGHTHS = " ▁▂▃▄▅▆▇█"
_LEVELS = {"bad": ("!", "bold #d55e00"), "note": ("-", ""), "good": ("+", "#009e73")}
_MIB = 1 << 20


def render(replay: Replay) -> RenderableType:
    """Return the verdicts, GPU by GPU."""
    parts: list[RenderableType] = [Text(replay.file, style="bold")]
    parts += [_gpu(gpu) for gpu in replay.gpus]
    parts += [
        Text(f"nvidia-smi said {count_of(count, 'time')}: {text}", style="#d55e00")
        for text, count in replay.failures.items()
    ]
    if not replay.gpus:
        parts.append(Text("There is no row of any GPU in it."))
    if replay.garbled:
        parts.append(Text(f"Cut or garbled, and left out: {count_of(replay.garbled, 'line')}.", style="dim"))
    return Group(*parts)


def _gpu(gpu: GpuResult) -> RenderableType:
    sign, style = _LEVELS[gpu.level]
    body: list[RenderableType] = [Text(f"{sign} {gpu.sentence}", style=style)]
    if gpu.exhaustion:
        left = gpu.exhaustion
        latest = "never" if left.high is None else human_seconds(left.high)
        within = _interval(human_seconds(left.seconds), human_seconds(left.low), latest)
        text = f"Full in about {within} {left.condition}."
        body.append(Text(text, style=style))
    if gpu.textbook:
        body.append(Text(f"- the textbook profile would warn: {'; '.join(gpu.textbook)}"))
    if gpu.plot:
        body += [Text(), *_plot(gpu.plot)]
    body += [Text(), _numbers(gpu)]
    title = Text(f"GPU {gpu.gpu}{f'  {gpu.name}' if gpu.name else ''}")
    return Panel(Group(*body), title=title, title_align="left")


def _plot(columns: tuple[float | None, ...]) -> list[Text]:
    """Return the plot as lines: the whole device from bottom to top; a gap is a dot at the bottom."""
    lines = []
    for row in reversed(range(HEIGHT)):
        line = ""
        for value in columns:
            if value is None:
                line += "·" if row == 0 else " "
            else:
                filled = min(8, max(0, round(8 * (HEIGHT * min(1.0, value) - row))))
                line += _EIGHTHS[filled]
        label = {HEIGHT - 1: "100% ", 0: "  0% "}.get(row, "     ")
        lines.append(Text.assemble((label, "dim"), (line, "#0072b2")))
    if None in columns:
        lines.append(Text("     · no sample", style="dim"))
    return lines


def _interval(value: str, low: str, high: str) -> str:
    """Return a value with its interval, as they are printed; without where that says no more."""
    return value if low == high == value else f"{value} ({low} to {high})"


def _numbers(gpu: GpuResult) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    every = "" if gpu.interval_seconds is None else f", one every {human_seconds(gpu.interval_seconds)}"
    table.add_row("samples", f"{gpu.samples:,} over {human_seconds(gpu.span_seconds)}{every}")
    odd = [f"{count_of(gpu.gaps, 'gap')} ({human_seconds(gpu.gap_seconds)})"] if gpu.gaps else []
    odd += [f"the clock went back {count_of(gpu.clock_jumps, 'time')}"] if gpu.clock_jumps else []
    odd += [f"{count:,} without a value: {text}" for text, count in gpu.missing.items()]
    if odd:
        table.add_row("not there", Text("; ".join(odd)))
    if gpu.median_mib is not None and gpu.total_mib and gpu.least_mib is not None and gpu.most_mib is not None:
        sizes = (("least", gpu.least_mib), ("median", gpu.median_mib), ("most", gpu.most_mib))
        used = ", ".join(f"{name} {human_bytes(size * _MIB)} ({size / gpu.total_mib:.0%})" for name, size in sizes)
        table.add_row("used", f"{used} of {human_bytes(gpu.total_mib * _MIB)}")
    for name, text in _shapes(gpu).items():
        table.add_row(name, text)
    return table


def _shapes(gpu: GpuResult) -> Mapping[str, str]:
    rows: dict[str, str] = {}
    if gpu.sawtooth:
        saw = gpu.sawtooth
        rows["saw-tooth"] = (
            f"{saw.teeth:,} teeth of {saw.amplitude:.0%}, down to a floor of {saw.floor:.0%}, one every "
            f"{human_seconds(saw.period_seconds)}"
        )
    if gpu.growth:
        growth = gpu.growth
        slope = _interval(*(f"{each:+.3%}/min" for each in (growth.per_minute, growth.low, growth.high)))
        rows["floor"] = (
            f"{slope}, last half {growth.last_half_per_minute:+.3%}/min; {growth.retained:.1%} of the device never "
            "came back"
        )
        second = growth.acceleration_per_minute2
        if second is not None and (shown := f"{second:+.4%}/min²").strip("+-0.%/min²"):
            rows["acceleration"] = shown
    if gpu.staircase:
        stairs = gpu.staircase
        rows["staircase"] = (
            f"{stairs.steps} steps of {stairs.rise:.1%}, one every {human_seconds(stairs.every_seconds)}"
        )
    return rows
