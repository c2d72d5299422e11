"""The KV tide as a drawing: the last half an hour of one engine's pool, without any script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from html import escape

from agent.tide import SPAN_SECONDS, STEP_SECONDS, Moment

WIDTH, HEIGHT = 640, 170
LEFT, RIGHT, TOP, BOTTOM = 40, 6, 6, 20  # of the picture, around the plot
TICK_SECONDS = 300.0
GAP = 3  # steps without a moment are a hole


def picture(moments: Sequence[Moment], now: float) -> str:
    """Return the drawing with its key; a sentence where there are too few moments for one."""
    known = [each for each in moments if each.held is not None and each.at <= now]
    if len(known) < 2:
        return '<p class="quiet">The picture of the tide begins in some seconds.</p>'
    parts = [*_axes(now)]
    for css, level in _LEVELS:
        for run in _runs(known):
            points = " ".join(f"{_x(each.at, now):.1f},{_y(level(each)):.1f}" for each in run)
            parts.append(
                f'<polygon class="area-{css}" points="{_x(run[0].at, now):.1f},{_y(0)} {points} '
                f'{_x(run[-1].at, now):.1f},{_y(0)}"/>'
            )
    last = known[-1]
    label = f"KV pool over the last half an hour, now {last.held or 0:.0%} held"
    frame = f'class="tide" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}"'
    return f"<svg {frame}>{''.join(parts)}</svg>"


def _held(moment: Moment) -> float:
    return moment.held or 0.0


def _with_cached(moment: Moment) -> float:
    return _held(moment) + (moment.cached_idle or 0.0)


def _leaked(moment: Moment) -> float:
    return min(moment.orphaned or 0.0, _held(moment))


# What is drawn later lies above: leaked is at the bottom of what is held.
_LEVELS: tuple[tuple[str, Callable[[Moment], float]], ...] = (
    ("cached", _with_cached),
    ("held", _held),
    ("leak", _leaked),
)


def _runs(moments: Sequence[Moment]) -> Iterator[list[Moment]]:
    """Yield stretches without a hole."""
    run = [moments[0]]
    for each in moments[1:]:
        if each.at - run[-1].at > GAP * STEP_SECONDS:
            yield run
            run = []
        run.append(each)
    yield run


def _axes(now: float) -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{percent}%</text>'
    tick = now - now % TICK_SECONDS
    while tick > now - SPAN_SECONDS:
        x = _x(tick, now)
        if LEFT + 14 <= x <= WIDTH - RIGHT - 14:
            shown = time.strftime("%H:%M", time.localtime(tick))
            yield f'<text x="{x:.1f}" y="{HEIGHT - 5}" text-anchor="middle">{shown}</text>'
        tick -= TICK_SECONDS


def _x(at: float, now: float) -> float:
    share = 1.0 - min(max(now - at, 0.0) / SPAN_SECONDS, 1.0)
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return TOP + (1.0 - min(max(share, 0.0), 1.0)) * (HEIGHT - TOP - BOTTOM)
