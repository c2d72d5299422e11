"""What a replay says of one verdict."""

from __future__ import annotations

import msgspec

from agent.episodes import Episode
from agent.state import Tier
from agent.subject import Subject


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict that was confirmed. Times are Unix seconds; ``sentence``, ``remedy`` and ``evidence`` are the last.
    ``first_sentence`` is that of when it was confirmed, or first more than a note.

    ``resolved_at``: None where it stood to the end, or ``ending`` says why nobody saw its end.
    """

    kind: str
    subject: Subject
    tier: Tier
    suspected_at: float
    confirmed_at: float
    resolved_at: float | None
    ending: str
    first_sentence: str
    sentence: str
    remedy: str
    evidence: dict[str, float]


def life_of(episode: Episode) -> Life:
    """Return an episode for the faces of a replay."""
    last = episode.last
    return Life(
        kind=episode.kind,
        subject=episode.subject,
        tier=last.tier,
        suspected_at=episode.suspected_at,
        confirmed_at=episode.confirmed_at,
        resolved_at=episode.resolved_at,
        ending=episode.ending,
        first_sentence=episode.told.sentence,
        sentence=last.sentence,
        remedy=last.remedy,
        evidence=last.evidence,
    )
