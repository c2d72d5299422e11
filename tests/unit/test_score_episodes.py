"""Judging in both profiles at once, and the histograms of made-up engines."""

from __future__ import annotations

import pytest

from agent.judge import Judge
from bench.corpus.catalogue import scenarios
from bench.corpus.counts import Counts
from bench.score.episodes import PROFILES, Listener, listen


@pytest.mark.parametrize("name", ["blocks/leak by aborts/tuning-0", "pages/page: overload/tuning-0"])
def test_two_profiles_that_share_their_signals_say_what_they_say_alone(name: str) -> None:
    (scenario,) = [each for each in scenarios("tuning") if each.name == name]
    together = listen(scenario)
    for profile, policy in PROFILES.items():
        judge, listener = Judge(policy), Listener()
        for state in scenario.made().states:
            listener.take(state, judge.look(state).verdicts)
        alone = listener.finish()
        assert together.episodes[profile] == alone
        assert alone


def test_a_histogram_counts_a_value_where_its_bound_is() -> None:
    counts = Counts((1.0, 5.0))
    for value in (0.5, 1.0, 1.1, 5.0, 5.1):
        counts.add(value)
    counts.add(2.0, 3)
    row = counts.row()
    assert row.counts == (2, 5, 1)
    assert row.sum == pytest.approx(18.7)
