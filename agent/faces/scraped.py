"""Engines without hooks for people: what their pages say, what is wrong, and what pages can't say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.panel import Panel
from rich.text import Text

from agent.faces import grid
from agent.faces.lines import BAD, Line
from agent.retained import count_of
from agent.sources.scrape.state import PassedOver, ScrapedEngine, ScrapedState
from agent.state import AgentState, Judgement, Verdict
from agent.units import human_bytes, human_seconds

LABEL_WIDTH = 20
PASSED_SHOWN = 4
NOBODY = "No server of vLLM or SGLang without hooks is found on this host."
LEVEL = 0.001  # growth in a minute that is none, as a share of the pool


def render(state: AgentState) -> RenderableType | None:
    """Return the scraped engines, or why there are none although some are asked for; None where none are."""
    if state.scrape is None:
        why = absent(state)
        return Text(why, style="dim") if why else None
    lines = list(lines_of(state.scrape, state.judgement))
    if not lines:
        return Text(NOBODY, style="dim")
    styles = {line.style for line in lines}
    border = BAD if BAD in styles else "yellow" if "yellow" in styles else "#009e73"
    return Panel(
        grid.table(lines) or Text(""), title=Text("engines without hooks"), title_align="left", border_style=border
    )


def absent(state: AgentState) -> str:
    """Say why no pages are read; empty where that is not asked for."""
    reasons = (source.reason for source in state.sources if source.source == "scrape")
    return next((f"Pages of engines are not read: {reason}." for reason in reasons), "")


def lines_of(scraped: ScrapedState, judgement: Judgement | None) -> Iterator[Line]:
    """Yield what there is to say, engine by engine, then what holds for all. ``judgement``: what was made of it."""
    for engine in scraped.engines:
        verdicts = [each for each in (judgement.verdicts if judgement else ()) if _concerns(each, engine)]
        label = engine.engine if len(engine.engine) <= LABEL_WIDTH else f"{engine.engine[: LABEL_WIDTH - 1]}…"
        if label != engine.engine:
            yield Line(label, engine.engine)
        yield from (Line(label, text, style) for text, style in _engine(engine, verdicts))
    if scraped.left_out:
        yield Line("left out", f"{count_of(scraped.left_out, 'engine')} more on these pages, not followed", "yellow")
    yield from _passed(scraped.passed_over)
    if common := _unsaid(scraped.engines):
        yield Line("not told", f"{'; '.join(common)}. Only hooks tell these: install kvtide beside the engine.", "dim")


def _concerns(verdict: Verdict, engine: ScrapedEngine) -> bool:
    return verdict.subject.scope == "engine" and verdict.subject.engine == engine.engine


def _engine(engine: ScrapedEngine, verdicts: Sequence[Verdict]) -> Iterator[tuple[str, str]]:
    if engine.phase != "up":
        since = engine.page_age_seconds
        last = "" if since is None or engine.phase == "stale" else f", last read {human_seconds(since)} ago"
        words = {"down": "down", "bad_page": "not a page of metrics", "stale": "stale"}[engine.phase]
        yield f"{words}: {engine.reason} ({engine.url}{last})", "yellow"
    for verdict in verdicts:
        if verdict.kind != "sensor_stale" and verdict.phase != "resolved":  # what is stale is said above
            style = "dim" if verdict.tier == "note" else BAD if verdict.phase == "confirmed" else "yellow"
            yield f"{verdict.kind} {verdict.phase}: {verdict.sentence} {verdict.remedy}", style
    if engine.phase == "up":
        yield _pool(engine), ""
        yield _work(engine), ""
        for what in ("use of the pool", "size of the pool", "progress"):
            if what in engine.cannot:
                yield f"{what} not known: {engine.cannot[what]}", "dim"


def _pool(engine: ScrapedEngine) -> str:
    parts = []
    for held, capacity, unit in (
        (engine.held_blocks, engine.capacity_blocks, "blocks"),
        (engine.held_tokens, engine.capacity_tokens, "tokens"),
    ):
        if held is not None and capacity is not None:
            parts.append(f"{held:,} of {capacity:,} {unit}")
        elif held is not None:
            parts.append(f"{held:,} {unit}")
        elif capacity is not None:
            parts.append(f"of {capacity:,} {unit}")
    if engine.held_bytes is not None and engine.capacity_bytes is not None:
        parts.append(f"{human_bytes(engine.held_bytes)} of {human_bytes(engine.capacity_bytes)} a rank")
    use = "use of the pool not known" if engine.usage_ratio is None else f"{engine.usage_ratio:.0%} of the pool held"
    return use + (f": {', '.join(parts)}" if parts else "") + _growth(engine)


def _growth(engine: ScrapedEngine) -> str:
    growth = engine.growth_per_minute
    if growth is None:
        return ""
    if abs(growth) < LEVEL:
        return "; level"
    text = f"; {'rises' if growth > 0 else 'falls'} by {abs(growth):.1%} of the pool a minute"
    more = engine.growth_acceleration
    if more is not None and abs(more) >= LEVEL:
        text += f", {'faster' if (more > 0) == (growth > 0) else 'slower'} each minute"
    return text


def _work(engine: ScrapedEngine) -> str:
    counts = (("running", engine.running), ("waiting", engine.waiting), ("swapped", engine.swapped or None))
    parts = [f"{number:,} {word}" for word, number in counts if number is not None]
    rates = (
        ("tokens/s generated", engine.generation_tokens_per_second),
        ("prompt tokens/s", engine.prompt_tokens_per_second),
    )
    parts += [f"{rate:,.0f} {word}" for word, rate in rates if rate is not None]
    if engine.prefix_hit_ratio is not None:
        parts.append(f"{engine.prefix_hit_ratio:.0%} of prompt tokens were cached")
    if engine.preemptions:
        parts.append(f"{count_of(engine.preemptions, 'preemption')} since it started")
    return ", ".join(parts) or "nothing about its requests"


def _passed(passed: Sequence[PassedOver]) -> Iterator[Line]:
    """Yield who is not scraped for a reason that somebody can do something about."""
    told = [one for one in passed if one.reason != "its hooks report"]
    for one in told[:PASSED_SHOWN]:
        yield Line("not scraped", f"pid {one.pid}: {one.reason}", "dim")
    if len(told) > PASSED_SHOWN:
        yield Line("not scraped", f"{len(told) - PASSED_SHOWN} more", "dim")


def _unsaid(engines: Sequence[ScrapedEngine]) -> list[str]:
    """Return what none of the pages tells."""
    told = [engine.cannot for engine in engines if engine.phase == "up"]
    return [what for what in told[0] if all(what in other for other in told)] if told else []
