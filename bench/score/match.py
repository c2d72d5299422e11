"""What counts: which verdicts are right about which faults, and how much time nothing was wrong (docs/score.md)."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.episodes import Episode
from agent.subject import Subject
from bench.corpus.scenario import Label
from bench.score.episodes import Heard

GRACE_SECONDS = 120.0  # after a fault has ended, in which a verdict on it may still come
WAKE_SECONDS = 900.0  # after a fault has ended, in which its consequences may still be seen


@dataclass(slots=True)
class Outcome:
    """One scenario in one profile. ``delays``: of each label, from onset to confirmation; None: missed.

    ``false``: verdicts that are right about nothing; ``false_pages``: those of them that paged in negative time.
    """

    heard: Heard
    delays: list[tuple[Label, float | None]] = field(default_factory=list)
    false: list[Episode] = field(default_factory=list)
    false_pages: list[Episode] = field(default_factory=list)
    negative_seconds: float = 0.0


def told_at(episode: Episode) -> float:
    """Return when somebody was told: before that it was a note at most."""
    return episode.confirmed_at if episode.told_at is None else episode.told_at


def matches(label: Subject, told: Subject) -> bool:
    """Return whether a verdict's subject is the label's: each field that the label has is the same in it."""
    pairs = ((getattr(label, name), getattr(told, name)) for name in ("engine", "tenant", "gpu", "process", "source"))
    return all(not wanted or wanted == found for wanted, found in pairs)


def judged(heard: Heard, profile: str) -> Outcome:
    """Return what is to be thought of what ``profile`` said."""
    outcome = Outcome(heard)
    episodes = heard.episodes[profile]
    right: set[int] = set()
    for label in heard.labels:
        end = heard.until if label.ended is None else label.ended + GRACE_SECONDS
        found = [
            each
            for each in episodes
            if each.kind == label.kind and matches(label.subject, each.subject) and label.onset <= told_at(each) <= end
        ]
        right |= {id(each) for each in found}
        outcome.delays.append((label, min(map(told_at, found)) - label.onset if found else None))
    for episode in episodes:
        if id(episode) in right or any(_implied(label, episode, heard.until) for label in heard.labels):
            continue
        outcome.false.append(episode)
        if episode.paged_at is not None and not any(
            _within(label, episode.paged_at, heard.until) for label in heard.labels
        ):
            outcome.false_pages.append(episode)
    outcome.negative_seconds = _negative(heard)
    return outcome


def _within(label: Label, at: float, until: float) -> bool:
    end = until if label.ended is None else label.ended + WAKE_SECONDS
    return label.onset <= at <= end


def _implied(label: Label, episode: Episode, until: float) -> bool:
    """A verdict of the fault's kind is implied as well: of a second rank, or once more after it had gone."""
    kinds = label.implied | {label.kind} if matches(label.subject, episode.subject) else label.implied
    return episode.kind in kinds and _within(label, told_at(episode), until)


def _negative(heard: Heard) -> float:
    """Return the seconds in which no fault was there, nor its wake."""
    spans = sorted(
        (label.onset, heard.until if label.ended is None else min(heard.until, label.ended + WAKE_SECONDS))
        for label in heard.labels
    )
    total, at = 0.0, heard.began
    for begin, end in spans:
        total += max(0.0, begin - at)
        at = max(at, end)
    return total + max(0.0, heard.until - at)
