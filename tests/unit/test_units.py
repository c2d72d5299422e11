"""Numbers for people."""

from __future__ import annotations

import pytest

from agent.units import human_bytes, human_seconds


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (1024**2, "1.0 MiB"),
        (5.25 * 1024**3, "5.2 GiB"),
        (1024**4, "1.0 TiB"),
        (5000 * 1024**4, "5000.0 TiB"),
        (-2048, "-2.0 KiB"),
    ],
)
def test_bytes(size: float, text: str) -> None:
    assert human_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (10, "10 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3599, "59 min"),
        (7199, "119 min"),
        (7200, "2 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert human_seconds(seconds) == text
