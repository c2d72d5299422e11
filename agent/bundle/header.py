"""What a bundle says of itself before its first state."""

from __future__ import annotations

import msgspec

from agent.signals.baseline import Baselines
from agent.signals.kept import Tracks
from agent.state import Verdict
from agent.subject import Subject
from engine_hooks import __version__

MAJOR, MINOR = 1, 0  # major: older readers can't read it; minor: they can, and pass over what they don't know


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about a simulated or staged fault. ``onset`` and ``ended`` are on the states' monotonic clock.

    ``kind``: the verdict that is due. ``ended``: None where the fault lasts to the end. ``unseen``: a kind of fault
    that nobody was allowed to tune for.
    """

    kind: str
    onset: float
    subject: Subject
    ended: float | None = None
    note: str = ""
    unseen: bool = False


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """``created_at``: Unix seconds. ``policy``: the one that judged live, as JSON; ``profile``: its profile.
    ``why``: what asked for the bundle.

    ``labelled``: the truth is known and ``labels`` has all of it; without any nothing is wrong. ``about``: what else a
    maker has to say of it, such as a seed. ``codec`` is the writer's business.
    """

    why: str
    version: str = __version__
    host: str = ""
    created_at: float = 0.0
    profile: str = "default"
    policy: str = ""
    labelled: bool = False
    labels: tuple[Label, ...] = ()
    about: dict[str, str] = {}
    codec: str = ""


class Usuals(msgspec.Struct, frozen=True, kw_only=True):
    """What the live judge had learned before the states that follow.

    ``tracks``: what its slow estimates rested on; None where that is not said.
    """

    baselines: Baselines
    tracks: Tracks | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as the live judge gave it when it began, its phase changed, or it was no longer a note.

    ``monotonic``: of the state judged. ``standing``: it did not change; where a recording begins, it is said of all
    verdicts that stand.
    """

    monotonic: float
    verdict: Verdict
    standing: bool = False
