"""Sums over outcomes: precision, recall, delay and false pages, in all and by kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench.score.match import Outcome, told_at
from bench.score.stats import Interval, percentile, poisson, wilson

WEEK = 7 * 86_400.0
PRECISION, RECALL, PAGES_PER_WEEK = 0.99, 0.97, 1.0
EXACT = ("kv_orphan", "kv_over_freed")  # of engines with hooks


@dataclass(slots=True)
class Tally:
    """Counts of one kind or of all. ``late``: found later than the label's due time."""

    faults: int = 0
    found: int = 0
    late: int = 0
    false: int = 0
    pages: int = 0
    delays: list[float] = field(default_factory=list)

    @property
    def recall(self) -> Interval | None:
        """Faults that were found, of all."""
        return wilson(self.found, self.faults)

    @property
    def precision(self) -> Interval | None:
        """Verdicts that were right, of all; a fault counts once however often it was told."""
        return wilson(self.found, self.found + self.false)

    def as_json(self) -> dict[str, object]:
        """Return it as numbers."""
        return {
            "faults": self.faults,
            "found": self.found,
            "late": self.late,
            "false": self.false,
            "false_pages": self.pages,
            "recall": self.recall,
            "precision": self.precision,
            "delay_median_seconds": percentile(self.delays, 0.5),
            "delay_p95_seconds": percentile(self.delays, 0.95),
        }


@dataclass(slots=True)
class Result:
    """One profile's score. ``weeks``: node-weeks in which nothing was wrong; ``exact``: of hooked leaks, see EXACT."""

    all: Tally = field(default_factory=Tally)
    seen: Tally = field(default_factory=Tally)
    unseen: Tally = field(default_factory=Tally)
    exact: Tally = field(default_factory=Tally)
    kinds: dict[str, Tally] = field(default_factory=dict)
    recipes: dict[str, Tally] = field(default_factory=dict)
    scenarios: int = 0
    negatives: int = 0
    weeks: float = 0.0

    @property
    def pages_per_week(self) -> Interval | None:
        """False pages a node-week."""
        return poisson(self.all.pages, self.weeks)

    def targets(self) -> dict[str, bool]:
        """Return which of the design's targets hold."""
        precision, recall, pages = self.all.precision, self.all.recall, self.pages_per_week
        return {
            f"precision >= {PRECISION}": precision is not None and precision.value >= PRECISION,
            f"recall >= {RECALL}": recall is not None and recall.value >= RECALL,
            f"false pages per node-week < {PAGES_PER_WEEK:g}": pages is not None and pages.value < PAGES_PER_WEEK,
            "orphan kinds exact": not self.exact.false and self.exact.found == self.exact.faults,
        }

    def as_json(self) -> dict[str, object]:
        """Return it as numbers."""
        return {
            "scenarios": self.scenarios,
            "negative_scenarios": self.negatives,
            "negative_node_weeks": self.weeks,
            "false_pages_per_node_week": self.pages_per_week,
            "targets": self.targets(),
            **{name: getattr(self, name).as_json() for name in ("all", "seen", "unseen", "exact")},
            "kinds": {name: tally.as_json() for name, tally in sorted(self.kinds.items())},
            "recipes": {name: tally.as_json() for name, tally in sorted(self.recipes.items())},
        }


def tally(outcomes: Iterable[Outcome]) -> Result:
    """Return the sums over ``outcomes``."""
    result = Result()
    for outcome in outcomes:
        scenario = outcome.heard.scenario
        assert scenario is not None
        recipe = scenario.recipe
        result.scenarios += 1
        result.negatives += not outcome.heard.labels
        result.weeks += outcome.negative_seconds / WEEK
        groups = [result.all, result.unseen if recipe.unseen else result.seen]
        groups.append(result.recipes.setdefault(recipe.name, Tally()))
        hooked = recipe.family != "pages"
        for label, delay in outcome.delays:
            into = [*groups, result.kinds.setdefault(label.kind, Tally())]
            into += [result.exact] if hooked and label.kind in EXACT else []
            for each in into:
                each.faults += 1
                if delay is not None:
                    each.found += 1
                    each.late += delay > label.due_seconds
                    each.delays.append(delay)
        paged = {id(each) for each in outcome.false_pages}
        for episode in outcome.false:
            into = [*groups, result.kinds.setdefault(episode.kind, Tally())]
            into += [result.exact] if hooked and episode.kind in EXACT else []
            for each in into:
                each.false += 1
                each.pages += id(episode) in paged
    return result


def misses(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each fault that was missed or found late and for each verdict that was false."""
    lines = []
    for outcome in sorted(outcomes, key=lambda each: each.heard.scenario.name if each.heard.scenario else ""):
        scenario, began = outcome.heard.scenario, outcome.heard.began
        assert scenario is not None
        for label, delay in outcome.delays:
            when = f"{scenario.name}: {label.kind} on {label.subject}, from {label.onset - began:,.0f} s"
            if delay is None:
                lines.append(f"MISSED {when} (due within {label.due_seconds:,.0f} s)")
            elif delay > label.due_seconds:
                lines.append(f"LATE   {when}: after {delay:,.0f} s, due within {label.due_seconds:,.0f} s")
        paged = {id(each) for each in outcome.false_pages}
        for episode in outcome.false:
            word = "PAGED " if id(episode) in paged else "FALSE "
            lines.append(
                f"{word} {scenario.name}: {episode.kind} ({episode.tier}) on {episode.subject}, at "
                f"{told_at(episode) - began:,.0f} s: {episode.told.sentence}"
            )
    return lines
