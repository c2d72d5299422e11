"""Levers at random moments under load: no surviving request gets another token than without; and the control."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bed import chaos
from tests.bed.engine import EngineServer
from tests.bed.orders import Orders

SECONDS = 25.0
LEVERS = ",".join(chaos.ARGUMENTS)


@contextmanager
def serving(place: Path, *, asynchronous: bool) -> Iterator[tuple[Orders, EngineServer]]:
    """A real server that obeys every lever, and the link by which they are pulled."""
    (place / "corrupt").mkdir()
    with Orders(place) as orders:
        env = {**orders.engine_env(), "KVTIDE_LEVERS": LEVERS, "KVTIDE_TEST_CORRUPT_DIR": str(place / "corrupt")}
        log, args = place / "engine.log", chaos.engine_arguments(asynchronous)
        with EngineServer(log, num_blocks=chaos.BLOCKS, args=args, env=env) as engine:
            engine.wait_ready()
            orders.wait_live()
            yield orders, engine


@pytest.mark.parametrize("asynchronous", [True, False])
def test_no_token_differs_whatever_is_pulled(asynchronous: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        place = Path(name)
        with serving(place, asynchronous=asynchronous) as (orders, engine):
            expected = chaos.quiet(engine.url)
            assert len(set(expected.values())) == chaos.PROMPTS  # else a comparison would say little
            played = chaos.play(orders, engine.url, expected, SECONDS, seed=3)
            assert played.strange == []
            assert played.differ == []
            assert played.served > 0
            done = {lever for (lever, code), count in played.codes.items() if code == "done" and count}
            assert {"watermark", "active_cap", "batch_tokens", "pause", "preempt"} <= done, played.codes
            orders.wait(lambda: chaos.at_rest(orders), 20.0)
            assert orders.engine().hooks is not None
            assert orders.engine().hooks.errors == {}

            # The control: one spoiled block of one running request is enough to be noticed.
            if asynchronous:
                return
            order = place / "corrupt" / "corrupt"
            spoil = threading.Timer(2.0, order.touch)
            spoil.start()
            control = chaos.play(orders, engine.url, expected, 10.0, seed=4)
            spoil.join()
            deadline = time.monotonic() + 5.0
            while not (place / "corrupt" / "corrupted.json").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            assert (place / "corrupt" / "corrupted.json").exists(), list((place / "corrupt").iterdir())
            assert control.differ, "a spoiled block of a running request went unnoticed"
