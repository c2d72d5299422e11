"""The chaos kit's memory by way of torch: what a device would lose, on the device that is here."""

from __future__ import annotations

import time

import pytest
from kvtide_chaos.memory import MemoryLeakInjector

MIB = 2**20


def test_torch_memory_grows_to_its_limit_and_is_given_back() -> None:
    with MemoryLeakInjector("200MiB/s", limit=20 * MIB, where="cpu") as leak:
        deadline = time.monotonic() + 30.0
        while leak.leaked_bytes < 20 * MIB:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert sum(piece.nbytes for piece in leak._held) == 20 * MIB
        assert all(int(piece.min()) == 1 for piece in leak._held)
    assert leak.leaked_bytes == 0
    assert leak._held == []


def test_a_device_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(Exception, match=r"(?i)cuda"), MemoryLeakInjector(where="cuda:0"):
        pytest.fail("it started")
