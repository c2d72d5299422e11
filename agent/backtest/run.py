"""Runs the one judge, once for each policy, over everything that the sources give."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from agent.backtest.compare import compare
from agent.backtest.harm import HarmLog
from agent.backtest.labels import found, marked
from agent.backtest.result import Backtest, Episode, History, Outcome, Total, episode_of
from agent.backtest.watch import Watch
from agent.bundle.format import Label, Usuals
from agent.episodes import Episodes
from agent.policy.file import differences, of_profile
from agent.policy.types import Policy
from agent.replay.bundles import AGENT_ENDED
from agent.replay.fold import Fold
from agent.retained import count_of
from agent.state import AgentState, Judgement

_DAY = 86_400.0


class Named(NamedTuple):
    """A policy and what the user called it."""

    name: str
    policy: Policy


class Feed(Protocol):
    """Where states come from: one bundle, or one Prometheus with many targets."""

    def records(self) -> Iterator[tuple[str, AgentState | Usuals]]:
        """Yield states with the name of their history, in their order; and what an agent had learned before them."""
        ...

    def labels(self) -> tuple[Label, ...] | None:
        """Return what is known to be wrong, by the states' monotonic clock; None where nobody knows."""
        ...

    def remarks(self) -> tuple[str, ...]:
        """Return, once all states were given, what could not be used."""
        ...


class Looking(Protocol):
    """Is shown each judged state of a history, of ``at`` by the history's own clock."""

    def __call__(self, name: str, state: AgentState, judgement: Judgement, at: float) -> None:
        """Look at it."""


class _History:
    """One history. ``offset``: from the states' monotonic clock to the times that are shown."""

    def __init__(self, name: str, policies: Sequence[Named], look: Looking | None) -> None:
        self._name = name
        self._look = look
        self._tracks = [(each.name, Fold(each.policy), Episodes()) for each in policies]
        self._harm = HarmLog()
        self._watch = Watch()
        self._engines: dict[str, None] = {}
        self._lives = 0
        self._offset = self._first_offset = 0.0

    def take(self, record: AgentState | Usuals) -> None:
        """Judge the next state by each policy. One that is not later than the last is passed over, as in a replay."""
        for number, (_, fold, episodes) in enumerate(self._tracks):
            for state, judgement in fold.judgements((record,)):
                if fold.lives != self._lives:
                    self._begin(state, fold.lives)
                at = state.monotonic + self._offset
                episodes.take(judgement.verdicts, at, at - judgement.at)
                if not number:  # what harms is the same whatever one thinks of it
                    self._watch.take(at)
                    self._harm.take(state, judgement, at)
                    if self._look is not None:
                        self._look(self._name, state, judgement, at)
                    pages = state.scrape.engines if state.scrape else ()
                    self._engines.update(dict.fromkeys(each.engine for each in state.engines))
                    self._engines.update(dict.fromkeys(each.engine for each in pages))

    def _begin(self, state: AgentState, lives: int) -> None:
        """An agent began: the first, or one after another, whose host may have been started anew with its clock."""
        last, self._lives = self._watch.ended, lives
        if not self._watch.states:
            self._offset = self._first_offset = state.at - state.monotonic
            return
        if state.monotonic + self._offset <= last:
            self._offset = max(state.at, last) - state.monotonic
        for _, _, episodes in self._tracks:
            episodes.end(last, AGENT_ENDED)

    def remarks(self) -> Iterator[str]:
        """Yield what was not judged as it should have been."""
        fold = self._tracks[0][1]
        if fold.passed_over:
            yield f"{self._name}: {count_of(fold.passed_over, 'state')} out of order were passed over"
        if errors := sorted({name for _, each, _ in self._tracks for name in each.errors}):
            yield f"{self._name}: kvtide itself failed at {', '.join(errors)}: please report this"

    def finish(self, labels: tuple[Label, ...] | None) -> History:
        """Return what came of it. ``labels``: by the states' monotonic clock."""
        self._watch.finish()
        shown = None if labels is None else tuple(_moved(label, self._first_offset) for label in labels)
        outcomes = tuple(self._outcome(name, episodes, shown) for name, _, episodes in self._tracks)
        return History(
            name=self._name,
            began=self._watch.began,
            ended=self._watch.ended,
            watched_seconds=self._watch.watched_seconds,
            states=self._watch.states,
            gaps=self._watch.gaps,
            gap_seconds=self._watch.gap_seconds,
            engines=tuple(sorted(self._engines)),
            harm=self._harm.counts(),
            outcomes=outcomes,
            comparison=compare(*(each.episodes for each in outcomes)) if len(outcomes) == 2 else None,
        )

    def _outcome(self, name: str, episodes: Episodes, labels: tuple[Label, ...] | None) -> Outcome:
        told, passed = episodes.finish()
        ordered = sorted(map(episode_of, told), key=lambda each: each.confirmed_at)
        closed = marked((self._with_harm(each) for each in ordered), labels)
        return Outcome(
            policy=name,
            episodes=closed,
            passed=passed,
            found=None if labels is None else tuple(found(label, closed, self._harm) for label in labels),
            left_out=episodes.left_out,
        )

    def _with_harm(self, episode: Episode) -> Episode:
        harm = self._harm.first(episode.subject.engine, episode.suspected_at, episode.resolved_at)
        if harm is None:
            return episode
        return msgspec.structs.replace(episode, harm=harm, lead_seconds=harm.at - episode.confirmed_at)


def _moved(label: Label, offset: float) -> Label:
    ended = None if label.ended is None else label.ended + offset
    return msgspec.structs.replace(label, onset=label.onset + offset, ended=ended)


def run(
    policies: Sequence[Named],
    feeds: Iterable[Feed],
    *,
    tell: Callable[[str, AgentState | Usuals], None] = lambda *_: None,
    look: Looking | None = None,
) -> Backtest:
    """Return what each of ``policies``, one or two, would have said of the states of all ``feeds``.

    ``tell`` is called for each record that was judged, with its history's name; ``look`` for each state, with what the
    first policy made of it.
    """
    histories: list[History] = []
    remarks: list[str] = []
    for feed in feeds:
        found: dict[str, _History] = {}
        for name, record in feed.records():
            if name not in found:
                found[name] = _History(name, policies, look)
            found[name].take(record)
            tell(name, record)
        histories += [each.finish(feed.labels()) for each in found.values()]
        remarks += [remark for each in found.values() for remark in each.remarks()]
        remarks += feed.remarks()
    watched = sum(each.watched_seconds for each in histories)
    totals = (_total(each, [history.outcomes[n] for history in histories], watched) for n, each in enumerate(policies))
    return Backtest(totals=tuple(totals), histories=tuple(histories), watched_seconds=watched, remarks=tuple(remarks))


def _total(named: Named, outcomes: Sequence[Outcome], watched: float) -> Total:
    episodes = [episode for outcome in outcomes for episode in outcome.episodes]
    tiers = [episode.tier for episode in episodes]
    labelled = any(outcome.found is not None for outcome in outcomes)
    founds = [each for outcome in outcomes for each in outcome.found or ()]
    delays = [each.delay_seconds for each in founds if each.delay_seconds is not None]
    unexpected = [episode.tier for episode in episodes if episode.expected is False]
    changed = differences(named.policy, of_profile(named.policy.profile))
    return Total(
        policy=named.name,
        profile=named.policy.profile,
        changed={key: (str(here), str(there)) for key, (here, there) in changed.items()},
        pages=tiers.count("page"),
        warnings=tiers.count("warn"),
        notes=tiers.count("note"),
        pages_per_day=tiers.count("page") * _DAY / watched if watched > 0 else None,
        median_lead_seconds=_median(each.lead_seconds for each in episodes),
        hits=len(delays) if labelled else None,
        misses=len(founds) - len(delays) if labelled else None,
        false=len(unexpected) if labelled else None,
        false_pages=unexpected.count("page") if labelled else None,
        median_delay_seconds=_median(delays),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
