"""The score as a table for people, both profiles side by side."""

from __future__ import annotations

from collections.abc import Iterator

from agent.units import human_seconds
from bench.score.stats import Interval, percentile
from bench.score.tally import Result, Tally

_HEAD = f"{'':24}{'n':>5} {'recall':>7} {'>=':>6} {'false':>6} {'pages':>6} {'median':>8} {'p95':>8} {'late':>5}"


def table(results: dict[str, Result]) -> str:
    """Return the tables. ``>=``: the lower end of the 95 % interval of the recall."""
    return "\n".join(line for name, result in results.items() for line in _lines(name, result))


def _lines(name: str, result: Result) -> Iterator[str]:
    pages = result.pages_per_week
    yield (
        f"profile {name}: {result.scenarios} scenarios, {result.negatives} of them without a fault, {result.weeks:.1f} "
        "node-weeks in which nothing was wrong"
    )
    yield _HEAD
    for title, tally in (("all", result.all), ("seen kinds", result.seen), ("unseen kinds", result.unseen)):
        yield _row(title, tally)
    yield _row("orphan kinds (hooks)", result.exact)
    for kind, tally in sorted(result.kinds.items()):
        yield _row(f"  {kind}", tally)
    yield f"precision {_share(result.all.precision)}   recall {_share(result.all.recall)}"
    yield f"false pages per node-week {_rate(pages)}"
    for target, holds in result.targets().items():
        yield f"  {'holds ' if holds else 'MISSED'}  {target}"
    yield ""


def _row(title: str, tally: Tally) -> str:
    recall = tally.recall
    share = (f"{recall.value:.3f}", f"{recall.low:.3f}") if recall else ("-", "-")
    delays = [percentile(tally.delays, at) for at in (0.5, 0.95)]
    spent = ["-" if each is None else human_seconds(each) for each in delays]
    return (
        f"{title:24}{tally.faults:5} {share[0]:>7} {share[1]:>6} {tally.false:6} {tally.pages:6} "
        f"{spent[0]:>8} {spent[1]:>8} {tally.late:5}"
    )


def _share(value: Interval | None) -> str:
    return "-" if value is None else f"{value.value:.4f} [{value.low:.4f}, {value.high:.4f}]"


def _rate(value: Interval | None) -> str:
    return "-" if value is None else f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"
