"""Levers at random moments under load: no surviving request gets another token than without; and the control."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.bed import chaos
from tests.bed.greedy import PROMPTS, quiet

SECONDS = 25.0  # and until all of these were pulled
MUST = frozenset({"watermark", "active_cap", "batch_tokens", "pause", "preempt"})


def all_pulled(played: chaos.Played) -> bool:
    return done(played) >= MUST


def done(played: chaos.Played) -> set[str]:
    """Return the levers that have done something."""
    return {lever for (lever, code), count in played.codes.items() if code == "done" and count}


@pytest.mark.parametrize("asynchronous", [True, False])
def test_no_token_differs_whatever_is_pulled(asynchronous: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        place = Path(name)
        with chaos.serving(place, asynchronous=asynchronous) as (orders, engine):
            expected = quiet(engine.url)
            assert len(set(expected.values())) == PROMPTS  # else a comparison would say little
            played = chaos.play(orders, engine.url, expected, SECONDS, seed=3, enough=all_pulled)
            assert played.strange == []
            assert played.differ == []
            assert played.served > 0
            assert all_pulled(played), played.codes
            orders.wait(lambda: chaos.at_rest(orders), chaos.REST_SECONDS)
            assert orders.engine().hooks is not None
            assert orders.engine().hooks.errors == {}

            # The control: one spoiled block of one running request is enough to be noticed. `make chaos` has it for
            # both kinds of scheduling.
            if not asynchronous:
                control = chaos.control(orders, engine.url, expected, place / "corrupt", seed=4)
                assert control.differ, "a spoiled block of a running request went unnoticed"
