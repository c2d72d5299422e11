"""One engine: what is wrong with it, its pool's tide, forecast, health, how blocks are obtained, why requests wait."""

from __future__ import annotations

from collections.abc import Iterator

from agent.faces import allocator, detail, devices, scraped, signals
from agent.faces.lines import BAD
from agent.faces.lines import Line as Told
from agent.retained import count_of, peers_of
from agent.signals.types import EngineSignals
from agent.state import AgentState, EngineState, PoolState
from agent.top import bars
from agent.top.engines import Engine, engines_of, rate_of, standing, worst_first
from agent.top.history import History, Who, values
from agent.top.look import named
from agent.top.seen import Page, Room, Seen, Where
from agent.top.text import Line, cut_line, labelled, line, paragraph
from agent.top.verdict_lines import shortened
from agent.units import human_bytes, human_seconds

NAME = "engine"
FACTS = 13  # lines of a low screen that are for the pool and what it does
LABELS = 13  # cells of the column of labels
LEVEL = 5e-5  # less of an acceleration reads as nothing
NUMBERS = 24  # cells behind a sparkline


def page(state: AgentState, seen: Seen, where: Where, room: Room) -> Page:
    """Return the page of the chosen engine, or of the one that is worst off."""
    found = Page()
    engines = engines_of(state)
    chosen = chosen_of(engines, where)
    if chosen is None:
        gone = f"Engine {where.engine.label} is gone." if where.engine is not None else "No engine is there."
        found.lines += [*paragraph(gone, room.width, "yellow"), *paragraph("Escape goes back.", room.width)]
        return found
    found.lines += _head(chosen, room.width)
    if chosen.quiet:
        found.lines += paragraph(f"No values: {chosen.quiet}.", room.width, "yellow")
    most = None if room.height is None else room.height - FACTS
    found.lines += shortened(standing(chosen), state.at, room.width, most)
    if not standing(chosen) and not chosen.quiet:
        found.lines.append(line(("Nothing is wrong.", "good")))
    for told in signals.lines(state, chosen.who.label, hooked=chosen.who.hooked):
        if told.label == "health":
            found.lines += labelled(told.label, told.text, room.width, named(told.style), LABELS)
    if not chosen.quiet:
        found.lines += _pool(chosen, room.width)
        found.lines += _tide(chosen, seen.history, room.width)
        found.lines += _flow(chosen, room.width)
    found.lines += _told(chosen, state, room.width)
    listing = f"{position(engines, chosen.who)}; [ and ] go to the others, enter shows its tenants"
    found.lines.append(cut_line(line((listing, "dim")), room.width))
    return found


def chosen_of(engines: list[Engine], where: Where) -> Engine | None:
    """Return the engine that was chosen, the worst one where none was; None where it is not there."""
    if where.engine is None:
        ranked = worst_first(engines)
        return ranked[0] if ranked else None
    named = [each for each in engines if each.who.label == where.engine.label]
    return next((each for each in named if each.who == where.engine), named[0] if named else None)


def position(engines: list[Engine], who: Who) -> str:
    """Return which of the engines this is."""
    place = next((number for number, each in enumerate(engines, 1) if each.who == who), 0)
    return f"engine {place} of {len(engines)}"


def _head(engine: Engine, cells: int) -> list[Line]:
    parts = [engine.who.label]
    if engine.state is not None:
        each = engine.state
        parts += [f"vLLM {each.engine_version}", f"pid {each.pid}", each.phase]
        if each.report_age_seconds is not None:
            parts.append(f"reported {human_seconds(each.report_age_seconds)} ago")
    elif engine.page is not None:
        parts += [f"{engine.page.kind}, no hooks", engine.page.url]
    return [cut_line(line((parts[0], "label"), "  " + "  ".join(parts[1:])), cells)]


def _pool(engine: Engine, cells: int) -> list[Line]:
    pool = engine.state.pool if engine.state is not None else None
    if pool is None:
        return [] if engine.state is None else [line("This engine has no KV block pool.")]
    size = cells - LABELS
    head = f"{pool.capacity:,} blocks"
    if pool.block_bytes is not None:
        head += f" of {human_bytes(pool.block_bytes)} a rank, {human_bytes(pool.capacity * pool.block_bytes)} in all"
    bar: Line = (*line(("KV pool".ljust(LABELS), "label")), *bars.of_pool(pool, size))
    found = [bar]
    parts: list[tuple[str, str]] = [(" " * LABELS, "")]
    for (letter, word, colour), number in zip(bars.POOL, _parts(pool), strict=True):
        text = "-" if number is None else f"{number:,}"
        if letter == "L" and number is not None and not pool.exact:
            text += "?"
        parts += [(f"{letter} {word} {text}", colour), ("  ", "")]
    found.append(cut_line(tuple(parts), cells))
    if engine.state is not None and not engine.state.audit_supported:
        found += labelled("", f"No exact accounting: {engine.state.audit_reason}.", cells, "yellow", LABELS)
    return [*found, *labelled("", head, cells, "dim", LABELS)]


def _parts(pool: PoolState) -> tuple[int | None, ...]:
    return pool.orphaned, pool.held, pool.cached_idle, pool.empty


def _tide(engine: Engine, history: History, cells: int) -> list[Line]:
    """Return held, growth and acceleration as sparklines with the numbers of now."""
    points = history.of(engine.who)
    told = engine.signals
    size = max(10, cells - LABELS - NUMBERS)
    room = (size, cells)
    growth = told.growth if told else None
    second = told.acceleration if told else None
    held = "-" if engine.held is None else f"{engine.held:.1%} of the pool"
    rising = "-" if growth is None else f"{rate_of(growth.per_minute)}/min"
    faster = "-" if second is None else f"{0.0 if abs(second) < LEVEL else second:+.2%}/min²"
    found = [
        _spark("held", values(points, "held"), held, room, whole=True),
        _spark("growth", values(points, "growth"), rising, room),
        _spark("acceleration", values(points, "acceleration"), faster, room),
    ]
    span = history.seconds(min(size, len(points)))
    text = f"the last {human_seconds(span)}, newest at the right" if span else "drawn from what is seen from now on"
    found.append(cut_line(line(" " * LABELS, (text, "dim")), cells))
    if told is not None and told.unexplained is not None:
        rate = told.unexplained
        text = f"{rate.per_minute:+.1%}/min that no live request accounts for ({rate.low:+.1%} to {rate.high:+.1%})"
        found += labelled("unexplained", text, cells, "", LABELS)
    if told is not None:
        found += labelled("forecast", _forecast(told), cells, "", LABELS)
    return found


def _spark(label: str, drawn: list[float | None], number: str, room: tuple[int, int], *, whole: bool = False) -> Line:
    """``room``: cells of the sparkline and of the line; ``whole``: its scale is the pool, not what is drawn."""
    size, cells = room
    drawn = drawn[-size:]
    known = [each for each in drawn if each is not None]
    low, high = (0.0, 1.0) if whole else (min([0.0, *known]), max([0.0, *known]))
    if not whole and high - low < 1e-3:  # what is level is not blown up
        low, high = -5e-4, max(high, 5e-4)
    parts = line((label.ljust(LABELS), "label"), (bars.spark(drawn, size, low, high), "spark"), f" {number}")
    return cut_line(parts, cells)


def _forecast(told: EngineSignals) -> str:
    if told.exhaustion is not None:
        forecast = told.exhaustion
        latest = "never" if forecast.high is None else human_seconds(forecast.high)
        when = f"{human_seconds(forecast.seconds)} ({human_seconds(forecast.low)} to {latest})"
        return f"full in {when} {forecast.condition}".strip()
    return f"- {told.no_forecast}".strip() if told.no_forecast else "-"


def _flow(engine: Engine, cells: int) -> list[Line]:
    """Return allocation latency, preemption, and what moves, as far as they are known."""
    told = engine.signals
    counts = [
        "-" if number is None else f"{number:,} {word}"
        for word, number in (("running", engine.running), ("waiting", engine.waiting))
    ]
    found: list[Line] = []
    if told is None:
        return labelled("requests", ", ".join(counts), cells, "", LABELS)
    if told.tokens_per_second is not None:
        counts.append(f"{told.tokens_per_second:,.0f} tokens/s")
    if told.request_p99_seconds is not None:
        usual = "" if told.request_p99_times is None else f" ({told.request_p99_times:.1f} times what is usual)"
        counts.append(f"99% end within {human_seconds(told.request_p99_seconds)}{usual}")
    if told.prefix_hit_ratio is not None:
        counts.append(f"{told.prefix_hit_ratio:.0%} of prompt tokens were cached")
    found += labelled("requests", ", ".join(counts), cells, "", LABELS)
    found += labelled("allocation", ", ".join(_allocation(told)), cells, "", LABELS)
    found += labelled("preemption", ", ".join(_preemption(told)), cells, "", LABELS)
    return found


def _allocation(told: EngineSignals) -> Iterator[str]:
    none = "no request was refused blocks in the last minute" if told.hooked else "- only hooks tell it"
    wait = told.latency_p99_seconds
    yield none if wait is None else f"refused at first, 99% had blocks within {_short(wait)}"
    if told.take_p99_seconds is not None:
        yield f"one call takes {_short(told.take_p99_seconds)} (p99)"
    if told.refused_per_minute:
        yield f"{count_of(told.refused_per_minute, 'refusal')} a minute"


def _preemption(told: EngineSignals) -> Iterator[str]:
    rate = told.preempted_per_minute
    yield "-" if rate is None else f"{rate:,.1f} a minute"
    if told.rebuild_ratio is not None:
        yield f"{told.rebuild_ratio:.1%} of prefill is computed again"
    if told.rebuild_cost_ratio is not None:
        yield f"which takes {told.rebuild_cost_ratio:.1%} of the time"
    if told.harm:
        yield "memory has made somebody wait in the last minute"


def _short(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else human_seconds(seconds)


def _told(engine: Engine, state: AgentState, cells: int) -> list[Line]:
    """Return what the other faces say in lines, the same words."""
    told: list[Told] = []
    label = engine.who.label
    if state.balancer is not None and (weight := state.balancer.told(label)) is not None and weight.step != "full":
        told.append(Told("weight", f"{weight.percent}% at the load balancer ({weight.step}): {weight.why}", "yellow"))
    if engine.state is not None:
        if engine.state.detail is not None:
            peers = peers_of((each.engine, each.detail) for each in state.engines)
            told += detail.lines_of(engine.state.detail, peers)
        told += allocator.failures([each for each in state.failures if each.engine == label], state.at)
        told += allocator.lines(engine.state.members, gpus=devices.any_gpu(state))
        told += _levers(engine.state)
    elif state.scrape is not None:
        told += [each for each in scraped.lines_of(state.scrape, None) if each.label == label]
    told.sort(key=lambda each: each.style != BAD)
    found: list[Line] = []
    previous = ""
    for each in told:
        found += labelled("" if each.label == previous else each.label, each.text, cells, named(each.style), LABELS)
        previous = each.label
    return found


def _levers(engine: EngineState) -> Iterator[Told]:
    for lease in engine.in_force:
        yield Told("in force", f"{lease.lever} (action {lease.action})", "yellow")
