"""One engine's weight over time: a pure function from what it was, what is seen and the time to what it is now.

full -> halved (50 %) -> isolated (0 %, five minutes) -> restoring (10, 25, 50, 75 %) -> full. Down at once, after two
looks that agree; up one step at a time, each only after a minute of calm. Below 50 % only while the coordinator grants
it. Where nothing is known any more the weight stays for two minutes, then it is full: a sensor that fails must not take
an engine away.
"""

from __future__ import annotations

from msgspec.structs import replace

from agent.balancer.evidence import Evidence, Level
from agent.balancer.state import Step, Weight, WeightMode
from agent.subject import Value
from agent.units import human_seconds

HALF = 50
NOT_ISOLATED = "; not isolated: "


class Pace(Value, frozen=True, kw_only=True):
    """How quickly weights move, in seconds. ``ladder``: percentages on the way up. ``confirm``: what is found must last
    so long; ``eject``: an isolation lasts so long at least; ``step``: it must be calm for so long before each step up;
    ``hold``: a weight stays so long without data; ``grace``: after it is full again nothing is taken away for so long.
    """

    ladder: tuple[int, ...] = (10, 25, 50, 75)
    confirm: float = 0.9
    eject: float = 300.0
    step: float = 60.0
    hold: float = 120.0
    grace: float = 120.0


class Track(Value, frozen=True, kw_only=True):
    """An engine's weight and since when (monotonic seconds) it is so: ``entered`` this step, ``breach`` at least to be
    halved, ``severe`` to be isolated, ``calm``, ``unknown``; ``restored`` when it was last full again. ``wants``: it
    needs the coordinator's grant, or goes on needing it.
    """

    weight: Weight
    entered: float
    breach: float | None = None
    severe: float | None = None
    calm: float | None = None
    unknown: float | None = None
    restored: float | None = None
    wants: bool = False


def fresh(now: float, at: float, why: str = "", *, restored: bool = False) -> Track:
    """Return the track of an engine that gets all its share, at ``now`` (monotonic) and ``at`` (Unix). ``restored``: it
    did not before, so that it has a time of grace.
    """
    return Track(weight=Weight(since=at, why=why), entered=now, restored=now if restored else None)


class Look(Value, frozen=True, kw_only=True):
    """What is seen at ``now`` (monotonic; ``at`` is the wall clock). ``granted``: the coordinator lets the engine be
    below 50 % now, else ``refusal`` says why not, empty while it is being asked.
    """

    evidence: Evidence
    granted: bool
    refusal: str = ""
    now: float
    at: float

    def lasts(self, since: float | None, seconds: float) -> bool:
        """Return whether what began at ``since`` (None: it is not so) has lasted for so long."""
        return since is not None and self.now - since >= seconds


def advance(track: Track, look: Look, pace: Pace) -> Track:
    """Return what ``track`` has become."""
    level = look.evidence.level
    if track.restored is not None and look.now - track.restored < pace.grace and level in ("halve", "isolate"):
        level = "uneasy"
    track = _timed(track, level, look.now)
    if track.unknown is not None:
        track = _unseen(track, look, pace)
    else:
        severe = look.lasts(track.severe, pace.confirm)
        track = replace(track, wants=severe)
        if track.weight.percent < HALF and not look.granted:
            why = f"no longer granted{f': {look.refusal}' if look.refusal else ''}; {look.evidence.why}"
            track = _to(track, look, "halved", HALF, why)
        elif severe and track.weight.step != "isolated":
            track = _ejected(track, look)
        elif track.weight.percent > HALF and look.lasts(track.breach, pace.confirm):
            track = _to(track, look, "halved", HALF, look.evidence.why)
        else:
            track = _upwards(track, look, pace)
    return replace(track, wants=track.wants or track.weight.percent < HALF)


def _timed(track: Track, level: Level, now: float) -> Track:
    def since(before: float | None, holds: bool) -> float | None:
        return (now if before is None else before) if holds else None

    return replace(
        track,
        breach=since(track.breach, level in ("halve", "isolate")),
        severe=since(track.severe, level == "isolate"),
        calm=since(track.calm, level == "calm"),
        unknown=since(track.unknown, level == "unknown"),
    )


def _unseen(track: Track, look: Look, pace: Pace) -> Track:
    track = replace(track, wants=False)
    if track.weight.step == "full" or not look.lasts(track.unknown, pace.hold):
        return track
    why = f"{look.evidence.why} for {human_seconds(pace.hold)}: all its share again"
    return fresh(look.now, look.at, why, restored=True)


def _ejected(track: Track, look: Look) -> Track:
    if look.granted:
        return _to(track, look, "isolated", 0, look.evidence.why)
    why = f"{look.evidence.why}{NOT_ISOLATED}{look.refusal or 'the coordinator is being asked'}"
    if track.weight.percent == HALF and track.weight.why.rpartition(NOT_ISOLATED)[2] == why.rpartition(NOT_ISOLATED)[2]:
        return track  # nothing new but the number
    return _to(track, look, "halved", HALF, why)


def _upwards(track: Track, look: Look, pace: Pace) -> Track:
    """Give back one step, where it has been calm for long enough."""
    step, calm = track.weight.step, f"calm: {look.evidence.why}"
    if step == "isolated":
        if look.lasts(track.entered, pace.eject) and look.lasts(track.calm, pace.confirm):
            track = _to(track, look, "restoring", pace.ladder[0], calm)
        return track
    if step == "full" or track.calm is None or not look.lasts(max(track.entered, track.calm), pace.step):
        return track
    for percent in pace.ladder:
        if percent > track.weight.percent:
            return _to(track, look, "restoring", percent, calm)
    return fresh(look.now, look.at, calm, restored=True)


def _to(track: Track, look: Look, step: Step, percent: int, why: str) -> Track:
    since = track.weight.since if percent == track.weight.percent else look.at
    mode: WeightMode = "up" if percent else "drain"
    weight = Weight(percent=percent, mode=mode, since=since, why=why, step=step)
    return replace(track, weight=weight, entered=look.now)
