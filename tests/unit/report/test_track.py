"""A series stays bounded however long it is, and keeps its peaks."""

from __future__ import annotations

from agent.report.track import MOST_POINTS, Track


def test_a_long_series_is_thinned_and_keeps_its_peak() -> None:
    track = Track(("held", "other"), "held")
    for second in range(10 * MOST_POINTS):
        track.add(float(second), {"held": 1000.0 if second == 33_333 else second % 7, "other": 1.0})
    assert MOST_POINTS / 2 <= len(track.at) <= MOST_POINTS
    assert track.most("held") == 1000.0
    assert track.at == sorted(track.at)
    assert track.at[0] < 20
    assert track.at[-1] > 10 * MOST_POINTS - 20


def test_a_short_series_is_as_it_came() -> None:
    track = Track(("held",), "held")
    for second in range(100):
        track.add(float(second), {"held": None if second < 50 else 2.0})
    assert len(track.at) == 100
    assert track.values["held"].count(None) == 50
    assert track.last("held") == 2.0


def test_what_was_never_known_is_not_zero() -> None:
    track = Track(("held", "use"), "held")
    track.add(0.0, {"held": 1.0})
    assert not track.known("use")
    assert track.most("use") is None
