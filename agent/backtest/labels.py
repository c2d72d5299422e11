"""Episodes against what is known to be wrong: found, missed, and what nobody needed."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agent.backtest.harm import HarmLog
from agent.backtest.result import Episode, Found
from agent.bundle.header import Label

EARLY_SECONDS = 1.0  # clocks and sampling: a verdict so much before the onset is still of it


def found(label: Label, episodes: Iterable[Episode], harm: HarmLog) -> Found:
    """Return what was made of ``label``: the first verdict of its kind on its subject while it held.

    A note tells nobody, and finds nothing.
    """
    told = (each for each in episodes if each.kind == label.kind and each.tier != "note")
    hit = next((each for each in told if _within(each, label, _EXACTLY)), None)
    if hit is None:
        return Found(label=label, delay_seconds=None, lead_seconds=None)
    first = harm.first(label.subject.engine, label.onset, label.ended)
    return Found(
        label=label,
        delay_seconds=max(0.0, hit.confirmed_at - label.onset),
        lead_seconds=None if first is None else first.at - hit.confirmed_at,
    )


def marked(episodes: Iterable[Episode], labels: tuple[Label, ...] | None) -> tuple[Episode, ...]:
    """Return ``episodes``, each with whether it was expected where there are labels.

    A leak brings pressure, too: what follows from a fault at its place and time is no false verdict. Notes are shown as
    no fault at all.
    """
    if labels is None:
        return tuple(episodes)
    return tuple(
        msgspec.structs.replace(
            each, expected=each.tier == "note" or any(_within(each, label, _ROUGHLY) for label in labels)
        )
        for each in episodes
    )


_EXACTLY = ("engine", "tenant", "gpu", "process", "source")
_ROUGHLY = ("engine",)


def _within(episode: Episode, label: Label, fields: Iterable[str]) -> bool:
    """Return whether ``episode`` is of the label's time and place, as far as both say where."""
    for field in fields:
        there, here = getattr(label.subject, field), getattr(episode.subject, field)
        if there and here and there != here:
            return False
    return episode.confirmed_at >= label.onset - EARLY_SECONDS and (
        label.ended is None or episode.suspected_at <= label.ended
    )
