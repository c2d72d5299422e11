"""A page's texts keep nothing of series that have gone: engines come and go, each with an id of its own."""

from __future__ import annotations

import gc
import tracemalloc

from exporters import catalogue as c
from exporters.collectors.base import Sample
from exporters.text import Text

LIVES = 1000
MOST_BYTES = 20 * LIVES  # one name alone has more


def test_labels_that_are_gone_are_forgotten() -> None:
    text = Text()

    def live(first: int) -> None:
        for number in range(first, first + LIVES):
            assert f'engine="life-{number}"' in text.of([Sample(c.MEMBERS_EXPECTED, (f"life-{number}", "worker"), 1)])

    live(0)
    tracemalloc.start()
    try:
        live(LIVES)
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < MOST_BYTES
