"""The outcome of a backtest, as values that go to the screen and to JSON alike.

Times are Unix seconds by the clock as it was at the beginning of a history: a clock that was set meanwhile moves none.
"""

from __future__ import annotations

import msgspec

from agent.bundle.header import Label
from agent.episodes import Episode as Told
from agent.episodes import Passed
from agent.state import Tier
from agent.subject import Subject


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all values of a backtest."""


class Harm(Value, frozen=True, kw_only=True):
    """What memory did to the work: ``what`` is refused, preempted, stalled, oom or killed."""

    what: str
    at: float
    engine: str = ""


class Episode(Value, frozen=True, kw_only=True):
    """One verdict that was confirmed. ``tier``: the highest that it had since; ``paged_at``: when it first paged.

    ``resolved_at`` is None where it stood at the end. ``sentence`` and ``evidence`` are those of the moment of
    confirmation. ``harm``: the first after the suspicion while the verdict stood; ``lead_seconds``: from the
    confirmation to it, below 0 where harm came first. ``expected``: False where the history has labels and none
    accounts for it, None where it has none.
    """

    kind: str
    subject: Subject
    tier: Tier
    suspected_at: float
    confirmed_at: float
    paged_at: float | None
    resolved_at: float | None
    ending: str
    sentence: str
    evidence: dict[str, float]
    harm: Harm | None = None
    lead_seconds: float | None = None
    expected: bool | None = None


def episode_of(told: Told) -> Episode:
    """Return an episode with the times and words of when somebody had to know, if that was ever so."""
    return Episode(
        kind=told.kind,
        subject=told.subject,
        tier=told.tier,
        suspected_at=told.suspected_at,
        confirmed_at=told.confirmed_at if told.told_at is None else told.told_at,
        paged_at=told.paged_at,
        resolved_at=told.resolved_at,
        ending=told.ending,
        sentence=told.told.sentence,
        evidence=told.told.evidence,
    )


class Found(Value, frozen=True, kw_only=True):
    """What a policy made of a label. ``delay_seconds``: from its onset to the verdict, None for a miss.

    ``lead_seconds``: from the verdict to the first harm after the onset, below 0 where harm came first; None without.
    """

    label: Label
    delay_seconds: float | None
    lead_seconds: float | None


class Outcome(Value, frozen=True, kw_only=True):
    """One policy over one history. ``found`` is None where the history has no labels; ``left_out``: episodes beyond
    the number that is kept.
    """

    policy: str
    episodes: tuple[Episode, ...]
    passed: tuple[Passed, ...]
    found: tuple[Found, ...] | None
    left_out: int = 0


class Pair(Value, frozen=True, kw_only=True):
    """The same verdict by two policies. ``later_seconds``: by how much the second confirmed it later than the first."""

    first: Episode
    second: Episode
    later_seconds: float


class Comparison(Value, frozen=True, kw_only=True):
    """Two policies over one history."""

    both: tuple[Pair, ...]
    only_first: tuple[Episode, ...]
    only_second: tuple[Episode, ...]


class History(Value, frozen=True, kw_only=True):
    """One recording, or one target of a Prometheus. ``watched_seconds``: its time without the gaps.

    ``harm``: how many times each kind of harm began. ``comparison`` is there where there are two policies.
    """

    name: str
    began: float
    ended: float
    watched_seconds: float
    states: int
    gaps: int
    gap_seconds: float
    engines: tuple[str, ...]
    harm: dict[str, int]
    outcomes: tuple[Outcome, ...]
    comparison: Comparison | None = None


class Total(Value, frozen=True, kw_only=True):
    """One policy over all histories. ``changed``: keys that differ from its profile, with both values as text.

    Numbers that concern labels are None where no history has any. ``false`` counts verdicts that nobody needs: warn and
    page, of no label's kind, at a time and place where no label says that anything is wrong.
    """

    policy: str
    profile: str
    changed: dict[str, tuple[str, str]]
    pages: int
    warnings: int
    notes: int
    pages_per_day: float | None
    median_lead_seconds: float | None
    hits: int | None = None
    misses: int | None = None
    false: int | None = None
    false_pages: int | None = None
    median_delay_seconds: float | None = None


class Backtest(Value, frozen=True, kw_only=True):
    """All of it. ``remarks``: what could not be used of a source, and why."""

    totals: tuple[Total, ...]
    histories: tuple[History, ...]
    watched_seconds: float
    remarks: tuple[str, ...] = ()
