"""A review of a long time, as a document: trends, what was wrong most often, what pressure cost, what it is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from agent.backtest.result import Backtest, Episode
from agent.report.document import Block, Document, Heading, Items, Lead, Picture, Quiet, Table
from agent.report.lines import line
from agent.report.money import SAVED_RATIO, YEARLY_COST, Assumptions, Cost, cost, return_on_investment, yearly_saving
from agent.report.periods import DAY, HOUR, Period
from agent.report.pictures import periods_picture
from agent.report.track import Track
from agent.report.words import clock, harm_counted
from agent.retained import count_of
from agent.units import human_seconds

SERIES = ("mean_use", "most_use", "least_score", "rebuild_hours", "pages")
CHANGED = 0.05  # of the pool, or five points of health: what changed less between the halves is no trend
MOST_KINDS = 20
LEAST_DRAWN = 3  # periods: of fewer there is no picture


def document(result: Backtest, periods: Sequence[Period], length: float, given: Assumptions) -> Document:
    """Return the review. ``periods`` are ``length`` seconds long each."""
    episodes = [each for history in result.histories for each in history.outcomes[0].episodes]
    engines = sorted({engine for history in result.histories for engine in history.engines})
    given = _filled(given, len(engines))
    began = min((history.began for history in result.histories), default=0.0)
    ended = max((history.ended for history in result.histories), default=0.0)
    spent = cost(
        seconds=ended - began,
        rebuild_seconds=sum(each.rebuild_seconds for each in periods),
        down_seconds=sum(each.down_seconds for each in periods),
        shed=sum(each.shed for each in periods),
        given=given,
    )
    form = "%Y-%m-%d %H:%M"
    about = (
        f"{clock(began, form)} to {clock(ended, form)} UTC ({human_seconds(ended - began)}), watched for "
        f"{human_seconds(result.watched_seconds)}; {count_of(len(engines), 'engine')}; judged by policy "
        f"{result.totals[0].policy}"
    )
    blocks: list[Block] = [
        Quiet(about),
        Lead(list(_summary(result, episodes, periods, spent))),
        Heading("Trends"),
        *_trends(periods, episodes, length),
        Heading("What was wrong"),
        _kinds(episodes),
        Heading("What pressure cost"),
        _cost(spent, result),
        Heading("What less of it is worth"),
        *_worth(given),
        Heading("How far to believe it"),
        Items(list(_remarks(result))),
    ]
    return Document("Memory health review", blocks)


def _filled(given: Assumptions, engines: int) -> Assumptions:
    if given.instances is not None:
        return given
    return Assumptions(
        **{name: getattr(given, name) for name in given.__struct_fields__} | {"instances": float(engines)}
    )


def _summary(result: Backtest, episodes: Sequence[Episode], periods: Sequence[Period], spent: Cost) -> Iterator[str]:
    total = result.totals[0]
    a_day = "" if total.pages_per_day is None else f" ({total.pages_per_day:.2g} a day)"
    yield f"{count_of(total.pages, 'page')}{a_day} and {count_of(total.warnings, 'warning')}."
    if standing := [each for each in episodes if each.resolved_at is None and not each.ending and each.tier != "note"]:
        kinds = ", ".join(dict.fromkeys(f"{each.kind} on {each.subject}" for each in standing))
        yield f"Not over at the end: {kinds}."
    yield from _trend(periods)
    lost = spent.rebuild_hours + spent.down_hours
    money = "" if spent.money is None else f", {spent.money:,.0f} at the price given"
    shed = count_of(spent.shed, "request")
    yield f"Pressure cost {human_seconds(HOUR * lost)} of engines' time{money}; {shed} refused."


def _trend(periods: Sequence[Period]) -> Iterator[str]:
    """Yield what is different in the later half; nothing for too few periods."""
    if len(periods) < 4:
        return
    half = len(periods) // 2
    earlier, later = (_means(part) for part in (periods[:half], periods[-half:]))
    for name, before, after in zip(("use of the pools", "the day's lowest health"), earlier, later, strict=True):
        if before is None or after is None:
            continue
        if abs(after - before) >= CHANGED:
            direction = "rose" if after > before else "fell"
            yield f"From the first half to the second, {name} {direction} from {before:.0%} to {after:.0%}."


def _means(periods: Sequence[Period]) -> tuple[float | None, float | None]:
    seconds = sum(each.use_seconds for each in periods)
    scores = [each.least_score for each in periods if each.least_score is not None]
    use = sum(each.use for each in periods) / seconds if seconds else None
    return use, sum(scores) / len(scores) / 100.0 if scores else None


def _trends(periods: Sequence[Period], episodes: Sequence[Episode], length: float) -> Iterator[Block]:
    if not periods:
        yield Quiet("Nothing was recorded.")
        return
    pages = Counter(int(each.confirmed_at // length) for each in episodes if each.tier == "page")
    track = Track(SERIES, "most_use")
    rows = []
    form = "%Y-%m-%d" if length >= DAY else "%m-%d %H:%M"
    for each in periods:
        paged = pages[int(each.at // length)]
        track.add(
            each.at + length / 2,
            {
                "mean_use": each.mean_use,
                "most_use": each.most_use,
                "least_score": each.least_score,
                "rebuild_hours": each.rebuild_seconds / HOUR,
                "pages": float(paged),
            },
        )
        rows.append(
            (
                clock(each.at, form),
                _share(each.mean_use),
                _share(each.most_use),
                "-" if each.least_score is None else f"{each.least_score:.0f}",
                str(paged),
                human_seconds(each.rebuild_seconds),
                f"{each.shed:,}",
                str(each.ooms),
                human_seconds(each.down_seconds),
            )
        )
    if len(periods) >= LEAST_DRAWN:
        lines = [line(track, "mean_use", 1.0, "of the pools", name="use")]
        lines.append(line(track, "least_score", 100.0, "of 100", name="health"))
        yield Picture(periods_picture(track, length), lines)
    head = ("UTC", "use", "peak", "lowest health", "pages", "rebuild", "refused", "OOM", "down")
    yield Table(head, rows, numbers=range(1, len(head)))


def _kinds(episodes: Sequence[Episode]) -> Table:
    rows = []
    by_kind = Counter((each.kind, each.tier) for each in episodes if each.tier != "note")
    for (kind, tier), count in by_kind.most_common(MOST_KINDS):
        own = [each for each in episodes if (each.kind, each.tier) == (kind, tier)]
        over = [each.resolved_at - each.suspected_at for each in own if each.resolved_at is not None]
        leads = [each.lead_seconds for each in own if each.lead_seconds is not None]
        where = Counter(str(each.subject) for each in own)
        rows.append(
            (
                kind,
                tier,
                str(count),
                human_seconds(sum(over) / len(over)) if over else "-",
                human_seconds(max(over)) if over else "-",
                _lead(sorted(leads)[len(leads) // 2]) if leads else "-",
                ", ".join(f"{name} ({times})" for name, times in where.most_common(3)),
            )
        )
    head = ("kind", "tier", "times", "mean length", "longest", "before harm", "most often on")
    return Table(head, rows, numbers=(2, 3, 4, 5), none="Nothing was wrong that anybody had to know of.")


def _cost(spent: Cost, result: Backtest) -> Table:
    harm: Counter[str] = Counter()
    for history in result.histories:
        harm.update(history.harm)
    rows = [
        ("prefill computed again (evicted or preempted)", human_seconds(HOUR * spent.rebuild_hours), "measured"),
        (
            "from a failure for want of memory until tokens came again",
            human_seconds(HOUR * spent.down_hours),
            "measured",
        ),
        ("requests refused at the front end", f"{spent.shed:,}", "measured"),
        *((harm_counted(what, count), f"{count:,}", "measured") for what, count in sorted(harm.items())),
    ]
    if spent.money is not None and spent.money_per_year is not None:
        rows.append(("cost over this time", f"{spent.money:,.2f}", "from the prices below"))
        rows.append(("the same over a year", f"{spent.money_per_year:,.0f}", "if all time were like this"))
    return Table(("what", "how much", "whence"), rows, numbers=(1,))


def _worth(given: Assumptions) -> Iterator[Block]:
    default = "the write-ups' figure"
    rows = [
        (
            "price of one instance for an hour",
            _money(given.hourly_price),
            _whence(given.hourly_price, "--hourly-price"),
        ),
        (
            "instances",
            f"{given.instances:,.0f}" if given.instances is not None else "-",
            "--instances, or engines seen",
        ),
        (
            "instances not needed once memory is in order",
            f"{given.saved_ratio:.0%}",
            default if given.saved_ratio == SAVED_RATIO else "--saved-ratio",
        ),
        (
            "cost of kvtide a year, people included",
            _money(given.yearly_cost),
            default if given.yearly_cost == YEARLY_COST else "--yearly-cost",
        ),
        ("worth of a refused request", _money(given.request_value), _whence(given.request_value, "--request-value")),
    ]
    if given.yearly_saving is not None:
        rows.append(("saving a year", _money(given.yearly_saving), "--yearly-saving"))
    yield Table(("assumption", "value", "whence"), rows, numbers=(1,))
    saving, ratio = yearly_saving(given), return_on_investment(given)
    if saving is None or ratio is None:
        yield Quiet("No sum is made: it needs --hourly-price, or --yearly-saving.")
        return
    yield Lead(
        [
            f"Saving {saving:,.0f} a year for {given.yearly_cost:,.0f}: a return of {ratio:.1f}, "
            f"(yearly saving - cost) / cost. It is as good as the assumptions above; nothing of it is measured."
        ]
    )


def _remarks(result: Backtest) -> Iterator[str]:
    states = sum(history.states for history in result.histories)
    yield f"{count_of(states, 'state')}; recordings or targets: {len(result.histories)}."
    if gaps := sum(history.gaps for history in result.histories):
        lost = sum(history.gap_seconds for history in result.histories)
        yield f"{count_of(gaps, 'gap')} of {human_seconds(lost)} in all: nothing is known of them."
    yield from result.remarks


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.0%}"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _whence(value: float | None, option: str) -> str:
    return "not given" if value is None else option


def _lead(seconds: float) -> str:
    return human_seconds(seconds) if seconds >= 0 else f"{human_seconds(-seconds)} late"
