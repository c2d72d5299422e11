"""What outlives an agent: how long an engine has been isolated, on which step of its way back it is, its grace."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from agent.balancer.weights import Pace, Track
from agent.subject import Value

EVERY_SECONDS = 20.0  # while any engine is not quite full
OLD_SECONDS = 600.0  # what an agent had seen that ended longer ago is not known any more


class KeptTrack(Value, frozen=True, kw_only=True):
    """An engine's life and its track, whose times are Unix ones here."""

    engine: str
    instance: str
    track: Track


class KeptTracks(Value, frozen=True, kw_only=True):
    """As of ``at``, Unix seconds."""

    at: float
    engines: tuple[KeptTrack, ...] = ()


class Keeper:
    """Says when what is to be kept has changed, or must be stamped anew."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._last: tuple[object, ...] = ()
        self._at = float("-inf")

    def due(self, tracks: Mapping[str, Track], instances: Mapping[str, str], now: float, at: float) -> bytes | None:
        """Return what is to be kept, None where that is the same as before. ``now``: monotonic, ``at``: Unix."""
        worth = {name: track for name, track in tracks.items() if name in instances and self._is_worth(track, now)}
        shape = tuple((name, instances[name], t.weight.step, t.weight.percent) for name, t in sorted(worth.items()))
        if shape == self._last and (not shape or now - self._at < EVERY_SECONDS):
            return None
        self._last, self._at = shape, now
        kept = tuple(
            KeptTrack(engine=name, instance=instances[name], track=_moved(track, at - now))
            for name, track in sorted(worth.items())
        )
        return msgspec.json.encode(KeptTracks(at=at, engines=kept))

    def _is_worth(self, track: Track, now: float) -> bool:
        graced = track.restored is not None and now - track.restored < self._pace.grace
        return track.weight.step != "full" or graced


def restored(body: bytes, now: float, at: float) -> dict[str, KeptTrack]:
    """Return the engines' tracks by the clock of this agent; none where they are old or can't be read."""
    if not body:
        return {}
    try:
        kept = msgspec.json.decode(body, type=KeptTracks)
    except msgspec.MsgspecError:
        return {}
    if not 0 <= at - kept.at <= OLD_SECONDS:
        return {}
    # What was found must be found again; what was done, and since when, stays.
    return {
        each.engine: replace(
            each,
            track=replace(_moved(each.track, now - at), breach=None, severe=None, calm=None, unknown=None),
        )
        for each in kept.engines
    }


def _moved(track: Track, by: float) -> Track:
    restored_at = None if track.restored is None else track.restored + by
    return replace(track, entered=track.entered + by, restored=restored_at)
