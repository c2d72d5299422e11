"""Sizes, rates and times as people write them, and the one line that says what is wrong."""

from __future__ import annotations

import pytest
from kvtide_chaos import quantities


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("10MB", 10_000_000), ("1GiB", 2**30), ("1.5 kB", 1_500), ("7", 7), (7, 7), ("2mib", 2 * 2**20)],
)
def test_sizes(text: str | int, wanted: int) -> None:
    assert quantities.byte_count(text) == wanted


@pytest.mark.parametrize("text", ["", "MB", "10 apples", "-1MB", "0", "1e3MB", "nan"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(quantities.QuantityError, match="size"):
        quantities.byte_count(text)


def test_rates() -> None:
    assert quantities.bytes_per_second("10MB/s") == 10_000_000
    assert quantities.bytes_per_second("6MB/m") == 100_000
    assert quantities.count_per_second("2 blocks/s", "blocks") == 2
    assert quantities.count_per_second("1block/s", "blocks") == 1
    assert quantities.count_per_second("30/m", "blocks") == 0.5


@pytest.mark.parametrize("text", ["10MB", "10MB/", "10MB/d", "10MB/s/s", "/s"])
def test_what_is_no_rate_of_bytes(text: str) -> None:
    with pytest.raises(quantities.QuantityError):
        quantities.bytes_per_second(text)


@pytest.mark.parametrize("text", ["2 requests/s", "0/s", "x/s", "2blocks"])
def test_what_is_no_rate_of_blocks(text: str) -> None:
    with pytest.raises(quantities.QuantityError):
        quantities.count_per_second(text, "blocks")


@pytest.mark.parametrize(("text", "wanted"), [("90", 90), (0.5, 0.5), ("5m", 300), ("1h", 3600), ("500ms", 0.5)])
def test_times(text: str | float, wanted: float) -> None:
    assert quantities.seconds(text) == wanted


@pytest.mark.parametrize("text", ["0", "5 d", "soon", "-1s"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(quantities.QuantityError, match="time"):
        quantities.seconds(text)
