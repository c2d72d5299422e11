"""The pictures of a report, as SVG text. Colours can be told apart by those who see few (Okabe and Ito's)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC
from math import nan
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

from agent.actions.types import Action
from agent.bundle.records import LATEST
from agent.plain import plain
from agent.replay.lives import Life
from agent.report.track import Track

HELD, CACHED, LEAK, GOOD, WARN, EMPTY, INK = "#0072b2", "#56b4e9", "#d55e00", "#009e73", "#e69f00", "#dddddd", "#333333"
_TIERS = {"page": LEAK, "warn": WARN, "note": "#999999"}
MOST_LANES = 8
_ON_TOP = ("data", "axes fraction")
MOST_NAME = 32  # characters
STYLE: Any = {
    "text.parse_math": False,  # a name with dollars is no formula
    "svg.fonttype": "none",  # letters stay letters: they can be searched and read aloud
    "svg.hashsalt": "kvtide",  # the same picture for the same recording
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "legend.frameon": False,
}


def engine_picture(track: Track, lives: Sequence[Life], actions: Sequence[Action]) -> str:
    """Return one engine: its blocks, what was said of it and done to it, its health. Empty where nothing is known."""
    pool, use = track.known("held") and track.known("capacity"), track.known("use")
    if not track.at or not (pool or use):
        return ""
    lives = lives[:MOST_LANES]
    with mpl.rc_context(STYLE):
        heights = [3.0, 0.25 + 0.22 * max(1, len(lives)), 1.1]
        figure = Figure(figsize=(9.0, sum(heights) + 0.6), layout="constrained")
        tide, lanes, health = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": heights})
        if pool:
            _tide(tide, track)
        else:
            _line(tide, track, "use", HELD, "in use")
            tide.set_ylim(0.0, 1.0)
            tide.yaxis.set_major_formatter(PercentFormatter(1.0))
            tide.set_ylabel("share of the pool")
        _lanes(lanes, track, lives, actions)
        _health(health, track)
        for axes in (tide, lanes, health):
            for number, action in enumerate(actions, 1):
                axes.axvline(_time(action.at), color=GOOD, linewidth=0.8, linestyle=":")
                if axes is tide:
                    place = _time(action.at), 1.0
                    axes.annotate(
                        str(number), place, xycoords=_ON_TOP, color=GOOD, fontsize=8, ha="center", va="bottom"
                    )
        return _svg(figure, health)


def gpu_picture(track: Track) -> str:
    """Return one GPU's used memory under its total; empty where nothing is known."""
    if not track.known("used"):
        return ""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 2.0), layout="constrained")
        axes = figure.subplots()
        _line(axes, track, "total", INK, "all of it", style="--")
        _line(axes, track, "used", HELD, "used")
        axes.set_ylim(bottom=0.0)
        axes.yaxis.set_major_formatter(EngFormatter(unit="B"))
        _legend(axes)
        return _svg(figure, axes)


def _tide(axes: Axes, track: Track) -> None:
    at = [_time(each) for each in track.at]
    values = track.values
    orphaned = [each or 0.0 for each in values["orphaned"]]
    held = [
        max(0.0, all_held - leaked) if all_held is not None else nan
        for all_held, leaked in zip(values["held"], orphaned, strict=True)
    ]
    leaked = [nan if all_held is None else each for all_held, each in zip(values["held"], orphaned, strict=True)]
    parts = [leaked, held]
    names, colours = ["leaked", "held"], [LEAK, HELD]
    if track.known("cached_idle"):
        parts.append([nan if each is None else each for each in values["cached_idle"]])
        names.append("cached idle")
        colours.append(CACHED)
    axes.stackplot(at, *parts, labels=names, colors=colours, linewidth=0)
    _line(axes, track, "capacity", INK, "capacity", style="--")
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("KV blocks")
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
    _legend(axes)


def _lanes(axes: Axes, track: Track, lives: Sequence[Life], actions: Sequence[Action]) -> None:
    end = max([track.at[-1], *(action.at for action in actions)])
    for lane, life in enumerate(lives):
        until = life.resolved_at if life.resolved_at is not None else end
        for since, to, alpha in ((life.suspected_at, life.confirmed_at, 0.35), (life.confirmed_at, until, 1.0)):
            axes.barh(
                lane, (_time(to) - _time(since)), left=_time(since), height=0.6, color=_TIERS[life.tier], alpha=alpha
            )
    if not lives:
        axes.text(0.0, 0.5, "no verdict", transform=axes.transAxes, color="#777777", va="center")
    names = [plain(f"{life.kind} {life.subject.tenant}".strip(), MOST_NAME) for life in lives]
    axes.set_yticks(range(len(lives)), names)
    axes.set_ylim(max(1, len(lives)) - 0.5, -0.5)
    axes.tick_params(left=False)


def _health(axes: Axes, track: Track) -> None:
    _line(axes, track, "score", GOOD, "health (0..100)")
    axes.set_ylim(0.0, 100.0)
    if track.known("waiting"):
        other = axes.twinx()
        _line(other, track, "waiting", WARN, "waiting requests")
        other.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
        other.set_ylim(bottom=0.0, top=max(1.0, 1.1 * (track.most("waiting") or 0.0)))
        lines, names = axes.get_legend_handles_labels()
        more, others = other.get_legend_handles_labels()
        axes.legend(lines + more, names + others, loc="upper left", bbox_to_anchor=(1.05, 1.0), fontsize=8)
    else:
        _legend(axes)


def _line(axes: Axes, track: Track, name: str, colour: str, label: str, *, style: str = "-") -> None:
    at = [_time(each) for each in track.at]
    values = [nan if value is None else value for value in track.values[name]]
    axes.plot(at, values, color=colour, linewidth=1.2, linestyle=style, label=label)


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.05, 1.0), fontsize=8)


def _svg(figure: Figure, lowest: Axes) -> str:
    locator = AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    lowest.xaxis.set_major_locator(locator)
    lowest.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    lowest.set_xlabel("UTC")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]


def _time(at: float) -> float:
    """Return days since 1970, as matplotlib's axes of dates have them."""
    return min(max(at, 0.0), LATEST) / 86400.0


def periods_picture(track: Track, length: float) -> str:
    """Return a review's periods of ``length`` seconds: use, health, pages."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.0, 4.2), layout="constrained")
        use, health, pages = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [2.0, 1.2, 0.8]})
        _line(use, track, "most_use", CACHED, "peak")
        _line(use, track, "mean_use", HELD, "mean")
        use.set_ylim(0.0, 1.0)
        use.yaxis.set_major_formatter(PercentFormatter(1.0))
        use.set_ylabel("use of the pools")
        _line(health, track, "least_score", GOOD, "lowest health")
        health.set_ylim(0.0, 100.0)
        at = [_time(each) for each in track.at]
        width = 0.8 * length / 86400.0
        pages.bar(at, [value or 0.0 for value in track.values["pages"]], width=width, color=LEAK, label="pages")
        pages.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
        for axes in (use, health, pages):
            _legend(axes)
        return _svg(figure, pages)
