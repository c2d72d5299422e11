"""The whole screen as lines: a head, the page with its chosen row, a foot. Pure; what shows it is in app.py."""

from __future__ import annotations

from dataclasses import dataclass

from agent.top.engines import engines_of, health_of
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import Line, cut, cut_line, line, pad, paragraph, width_of, wrap
from agent.top.verdict_lines import clock, head_of, loud
from agent.top.views.registry import HELP, TITLES, VIEWS
from agent.units import human_seconds

LEAST_WIDTH, LEAST_HEIGHT = 80, 24
HEAD_LINES, FOOT_LINES = 2, 1
REASON_LINES = 3


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the screen; ``stale``: it may no longer be so, and is drawn dim."""

    line: Line
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is being typed: ``what`` is filter or search."""

    what: str
    text: str


def page_of(seen: Seen, where: Where, room: Room, *, helping: bool = False) -> Page:
    """Return the page of the view; help instead, or a word where nothing is known yet."""
    if helping:
        return HELP(room)
    if seen.state is None:
        waiting = "" if seen.problem else f"Asking {seen.source} ..."
        return Page(lines=paragraph(waiting, room.width, "dim"))
    try:
        return VIEWS[where.view](seen.state, seen, where, room)
    except Exception as error:  # of all that an agent may send: the other views go on
        text = f"This view can't be drawn: {type(error).__name__}: {error}. Please report it."
        return Page(lines=paragraph(text, room.width, "bad"))


def body_height(seen: Seen, width: int, height: int) -> int:
    """Return the lines that are left for the page."""
    return max(1, height - HEAD_LINES - FOOT_LINES - len(trouble_of(seen, width)))


def screen(
    seen: Seen,
    where: Where,
    page: Page,
    size: tuple[int, int],
    *,
    scroll: int = 0,
    prompt: Prompt | None = None,
    note: str = "",
    helping: bool = False,
) -> list[Row]:
    """Return ``height`` rows, none wider than ``width``. ``note``: what the last key came to."""
    width, height = size
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        return _too_small(seen, width, height)
    rows = [Row(head_line(seen, width)), Row(_tabs(where, width, helping=helping))]
    rows += [Row(each) for each in trouble_of(seen, width)]
    room = height - len(rows) - FOOT_LINES
    lines = page.lines[scroll : scroll + room]
    chosen = cursor_of(page, where)
    for number, each in enumerate(lines, scroll):
        drawn = each
        if chosen is not None and page.picks[chosen].line == number:
            drawn = marked(each, width)
        rows.append(Row(cut_line(drawn, width), stale=seen.stale and not helping))
    rows += [Row(())] * (room - len(lines))
    rows.append(Row(_foot(seen, where, page, (scroll, room, width), prompt=prompt, note=note, helping=helping)))
    return rows


def cursor_of(page: Page, where: Where) -> int | None:
    """Return the place of the chosen row among the picks; the first where what was chosen is gone."""
    if not page.picks:
        return None
    key = where.cursors.get(where.view)
    return next((place for place, pick in enumerate(page.picks) if pick.key == key), 0)


def marked(spans: Line, width: int) -> Line:
    """Return a row that is chosen: a sign in its first cell, and bold."""
    first, *rest = spans
    text = first[0][1:] if first[0][:1] == " " else first[0]
    row: Line = ((">", "bold"), (text, first[1] or "bold"), *((each, style or "bold") for each, style in rest))
    return cut_line(row, width)


def head_line(seen: Seen, width: int) -> Line:
    """Return where the state comes from, of when it is, how it stands."""
    state = seen.state
    left: list[tuple[str, str]] = [(" kvtide top ", "label")]
    if state is not None:
        verdicts = loud(state)
        for tier in ("page", "warn"):
            if number := sum(each.tier == tier for each in verdicts):
                left += [(f" {number} {tier.upper()} ", tier), (" ", "")]
        engines = engines_of(state)
        scores = [each.health for each in engines if each.health is not None]
        if scores:
            worst = min(scores, key=lambda each: each.value)
            number_of, style = health_of(worst)
            left.append((f"health {number_of} ", style))
        if not verdicts and state.judgement is not None and engines:
            left.append(("ok ", "good"))
    right = _moment(seen)
    room = width - width_of(tuple(left)) - width_of(tuple(right)) - 2
    if room < 0 and seen.played is not None:  # where it is must not be cut; of when it is, the first part may
        right = right[1:]
        room = width - width_of(tuple(left)) - width_of(tuple(right)) - 2
    middle = cut(seen.source, max(0, room))
    return cut_line((*left, (" " + pad(middle, max(0, room)) + " ", "dim"), *right), width)


def _moment(seen: Seen) -> list[tuple[str, str]]:
    played = seen.played
    if played is None:
        at = "" if seen.state is None else clock(seen.state.at)
        if seen.problem:
            return [(" NO ANSWER ", "stale")]
        if seen.frozen:
            return [(f"{at} ", ""), (" HELD ", "tab")]
        return [(f"{at} live" if at else "", "")]
    where = f"{_minutes(played.position)}/{_minutes(played.length)}{'+' if played.loading else ''}"
    word = "paused" if played.paused else f"x{played.speed:g}"
    at = "" if seen.state is None else f"{clock(seen.state.at)} "
    return [(at, ""), (f" REPLAY {word} ", "tab"), (f" {where}", "")]


def _minutes(seconds: float) -> str:
    whole = int(seconds)
    hours = f"{whole // 3600}:" if whole >= 3600 else ""
    return f"{hours}{whole // 60 % 60:02d}:{whole % 60:02d}"


def _tabs(where: Where, width: int, *, helping: bool) -> Line:
    spans: list[tuple[str, str]] = []
    for number, name in enumerate(VIEWS, 1):
        here = name == where.view and not helping
        spans.append((f"[{number} {TITLES[name]}]" if here else f" {number} {TITLES[name]} ", "tab" if here else ""))
    if helping:
        spans.append(("[? help]", "tab"))
    of = " ".join(filter(None, (where.engine.label if where.engine else "", where.tenant or "")))
    if of:
        spans.append((cut(f"  {of}", max(0, width - width_of(tuple(spans)))), "label"))
    return cut_line(tuple(spans), width)


def trouble_of(seen: Seen, width: int) -> list[Line]:
    """Return why nothing new comes, since when, and how old is what is shown; nothing while answers come."""
    if seen.played is not None and seen.played.remark:
        return paragraph(seen.played.remark, width, "yellow")[:REASON_LINES]
    if not seen.problem:
        return []
    retrying = "" if seen.played is not None else ", retrying"
    old = "" if seen.age_seconds is None else f"; below is what was {human_seconds(seen.age_seconds)} ago"
    head = f"no answer since {clock(seen.problem_since)} ("
    tail = f"){retrying}{old}"
    # The reason may be long; that it goes on, and how old the rest is, must not be cut.
    reason = cut(seen.problem, max(20, REASON_LINES * (width - 12) - len(head) - len(tail)))
    return [line((each, "bad")) for each in wrap(head + reason + tail, width)]


def _foot(
    seen: Seen,
    where: Where,
    page: Page,
    view: tuple[int, int, int],
    *,
    prompt: Prompt | None,
    note: str,
    helping: bool,
) -> Line:
    """``view``: the first line of the page, how many there is room for, and the width."""
    scroll, room, width = view
    if prompt is not None:
        return cut_line(line((f"{prompt.what}: ", "label"), prompt.text, ("_", "bold"), "  (enter, escape)"), width)
    total = len(page.lines)
    right = f" {scroll + 1}-{min(total, scroll + room)} of {total} lines" if total > room else ""
    parts = []
    if note:
        parts.append(note)
    elif helping:
        parts.append("any key goes back")
    else:
        parts += ["q quit", "? help"]
        if where.pattern:
            parts.append(f"only rows with {where.pattern!r}")
        if page.orders:
            place, backwards = where.order(where.view)
            parts.append(f"s sort: {page.orders[place % len(page.orders)]}{' (reversed)' if backwards else ''}")
        if page.picks:
            parts.append("enter open")
        parts += ["f filter", "/ search", "space pause" if seen.played is not None else "space hold"]
    text = pad(cut(" " + "  ".join(parts), max(0, width - len(right))), max(0, width - len(right)))
    return cut_line(line((text, "dim"), right), width)


def _too_small(seen: Seen, width: int, height: int) -> list[Row]:
    """Say what is missing, and in what room there is the worst of what is wrong."""
    lines = paragraph(
        f"{width}x{height} is too small: kvtide top needs {LEAST_WIDTH}x{LEAST_HEIGHT}. q ends it.",
        max(1, width),
        "bold",
    )
    lines += trouble_of(seen, max(1, width))
    if seen.state is not None:
        lines += [head_of(each, seen.state.at, max(1, width)) for each in loud(seen.state)]
    rows = [Row(cut_line(each, max(0, width))) for each in lines[:height]]
    return rows + [Row(())] * (height - len(rows))
