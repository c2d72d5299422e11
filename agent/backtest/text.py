"""A backtest for terminals, readable in 100 columns: the totals, then what differs, then what is the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.backtest.result import Backtest, Comparison, Episode, Found, History, Outcome, Pair
from agent.backtest.span import shown
from agent.plain import plain
from agent.retained import count_of
from agent.units import human_seconds

_DAY = 86_400.0
_SAME_SECONDS = 0.05
MOST = 50  # verdicts of one list; --json has all
_STYLES = {"page": "bold #d55e00", "warn": "#d55e00", "note": ""}
_HARM = {
    "refused": "memory was refused",
    "preempted": "a request was preempted",
    "stalled": "no token any more",
    "oom": "an allocation failed",
    "killed": "a process was killed for memory",
}


def render(backtest: Backtest) -> RenderableType:
    """Return the totals and each history."""
    parts: list[RenderableType] = [_totals(backtest)]
    for history in backtest.histories:
        parts += [Text(), *_history(history)]
    if not backtest.histories:
        parts += [Text(), Text("There was nothing to judge.")]
    parts += [Text(plain(remark), style="#d55e00") for remark in backtest.remarks]
    return Group(*parts)


def _totals(backtest: Backtest) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for total in backtest.totals:
        table.add_column(Text(plain(total.policy, 40)), justify="right", overflow="fold")
    for name, cells in _rows(backtest):
        table.add_row(name, *cells)
    parts: list[RenderableType] = [table]
    for total in backtest.totals:
        parts += [
            Text(plain(f"{total.policy}: {key} is {here}, in the profile {total.profile} {there}"), style="dim")
            for key, (here, there) in total.changed.items()
        ]
    return Group(*parts)


def _rows(backtest: Backtest) -> Iterator[tuple[str, list[str]]]:
    totals, watched = backtest.totals, backtest.watched_seconds
    yield "profile", [each.profile for each in totals]
    yield "keys changed", [f"{len(each.changed):,}" for each in totals]
    yield "pages", [f"{each.pages:,}" for each in totals]
    # From an hour it is a guess, and whoever reads it must see that.
    a_day = "pages a day" if watched >= _DAY else f"pages a day, from {human_seconds(watched)}"
    yield a_day, ["-" if each.pages_per_day is None else f"{each.pages_per_day:,.2f}" for each in totals]
    yield "warnings", [f"{each.warnings:,}" for each in totals]
    yield "notes", [f"{each.notes:,}" for each in totals]
    yield "median time before harm", [_signed(each.median_lead_seconds) for each in totals]
    if totals[0].hits is not None:
        yield "faults found", [f"{each.hits} of {(each.hits or 0) + (each.misses or 0)}" for each in totals]
        yield "median time to find one", [_signed(each.median_delay_seconds) for each in totals]
        yield "verdicts nobody needed", [f"{each.false}, pages {each.false_pages}" for each in totals]


def _history(history: History) -> Iterator[RenderableType]:
    yield Text(plain(history.name), style="bold")
    gaps = f", {count_of(history.gaps, 'gap')} of {human_seconds(history.gap_seconds)} in all" if history.gaps else ""
    yield Text(
        f"{shown(history.began)} to {shown(history.ended)} UTC, watched for {human_seconds(history.watched_seconds)}"
        f" ({count_of(history.states, 'state')}{gaps})"
    )
    engines = ", ".join(plain(each, 60) for each in history.engines[:8])
    more = f" and {len(history.engines) - 8} more" if len(history.engines) > 8 else ""
    yield Text(f"engines: {engines or 'none'}{more}")
    harm = ", ".join(f"{count:,}x {_HARM[what]}" for what, count in history.harm.items())
    yield Text(f"harm: {harm or 'none'}")
    if history.outcomes[0].found == ():
        yield Text("By its labels nothing is wrong here.")
    if history.comparison is None:
        yield from _section("What would have been said", history.outcomes[0].episodes)
    else:
        yield from _compared(history.comparison, [each.policy for each in history.outcomes])
    for outcome in history.outcomes:
        yield from _rest(outcome)


def _compared(comparison: Comparison, names: Sequence[str]) -> Iterator[RenderableType]:
    first, second = (plain(name, 40) for name in names)
    yield from _section(f"Only by {first}", comparison.only_first)
    yield from _section(f"Only by {second}", comparison.only_second)
    title = f"By both, as {first} says it"
    yield from _list(title, [(pair.first, _twin(pair, second)) for pair in comparison.both])


def _twin(pair: Pair, name: str) -> str:
    """Return how the second policy says what the first says, too."""
    first, second = pair.first, pair.second
    parts = [_shifted(pair.later_seconds) or "at the same time"]
    if second.tier != first.tier:
        parts.append(f"as {second.tier}")
    elif first.paged_at is not None and second.paged_at is not None:
        page = _shifted(second.paged_at - first.paged_at)
        parts += [f"a page {page}"] if page and page != parts[0] else []
    return f"{name}: {', '.join((*parts, _lasted(second)))}"


def _shifted(seconds: float) -> str:
    if abs(seconds) < _SAME_SECONDS:
        return ""
    return f"{human_seconds(abs(seconds))} {'later' if seconds > 0 else 'earlier'}"


def _section(title: str, episodes: Sequence[Episode]) -> Iterator[RenderableType]:
    yield from _list(title, [(episode, "") for episode in episodes])


def _list(title: str, episodes: Sequence[tuple[Episode, str]]) -> Iterator[RenderableType]:
    """Yield a title and the episodes, each with what else is to be said of it."""
    yield Text(f"{title}: {len(episodes) or 'nothing'}", style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for episode, more in episodes[:MOST]:
        tier = Text(episode.tier, style=_STYLES[episode.tier])
        table.add_row(Text(f"  {shown(episode.confirmed_at)}"), tier, _told(episode, more))
    if episodes:
        yield table
    if len(episodes) > MOST:
        yield Text(f"  {len(episodes) - MOST:,} more: --json has all", style="dim")


def _told(episode: Episode, more: str) -> Text:
    after = human_seconds(episode.confirmed_at - episode.suspected_at)
    later = 0.0 if episode.paged_at is None else episode.paged_at - episode.confirmed_at
    paged = f", a page {human_seconds(later)} later" if later > 0 else ""
    lines = [f": confirmed after {after}{paged}, {_lasted(episode)}", plain(episode.sentence)]
    if episode.harm is not None and episode.lead_seconds is not None:
        side = "after" if episode.lead_seconds >= 0 else "before"
        harm = episode.harm
        where = f" in engine {plain(harm.engine, 40)}" if harm.engine != episode.subject.engine else ""
        lead = human_seconds(abs(episode.lead_seconds))
        lines.append(f"Harm: {_HARM[harm.what]}{where} {lead} {side} the verdict.")
    if episode.expected is False:
        lines.append("No label accounts for it.")
    lines += [more] if more else []
    return Text.assemble((f"{episode.kind} {plain(str(episode.subject), 40)}", "bold"), "\n".join(lines))


def _lasted(episode: Episode) -> str:
    if episode.resolved_at is None:
        return "stood at the end"
    ending = f" ({plain(episode.ending)})" if episode.ending else ""
    return f"lasted {human_seconds(episode.resolved_at - episode.suspected_at)}{ending}"


def _rest(outcome: Outcome) -> Iterator[RenderableType]:
    name = plain(outcome.policy, 40)
    for each in outcome.found or ():
        yield _label(each, name)
    passed = [
        f"{each.kind} {count_of(each.count, 'time')}, {human_seconds(each.longest_seconds)} at most"
        for each in outcome.passed
    ]
    if passed:
        yield Text(f"{name}: suspected and gone before it was confirmed: {'; '.join(passed)}", style="dim")
    if outcome.left_out:
        yield Text(f"{name}: {outcome.left_out:,} verdicts more than are kept", style="#d55e00")


def _label(each: Found, name: str) -> Text:
    label = each.label
    what = f"{name}: {label.kind} of {plain(str(label.subject), 40)} from {shown(label.onset)}"
    if each.delay_seconds is None:
        return Text(f"{what}: missed", style="#d55e00")
    return Text(f"{what}: found after {human_seconds(each.delay_seconds)}{_before(each.lead_seconds)}")


def _before(lead: float | None) -> str:
    if lead is None:
        return ""
    return f", {human_seconds(abs(lead))} {'before' if lead >= 0 else 'after'} the first harm"


def _signed(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{'-' if seconds < 0 else ''}{human_seconds(abs(seconds))}"
