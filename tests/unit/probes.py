"""What the tests of the torch probe share."""

from __future__ import annotations

import threading
from typing import Any

from engine_hooks.allocator import MIB
from engine_hooks.members import MemberReport
from engine_hooks.settings import Settings
from engine_hooks.torch.probe import Probe
from engine_hooks.wire import decode, encode
from tests.bed.snapshots import AllocatorBed, stacks


class Speaker:
    """Counts how often it was told to speak, and by whom."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.still = 0

    def speak(self) -> bool:
        self.threads.append(threading.get_ident())
        return True

    def connecting(self) -> bool:
        self.still -= 1
        return self.still >= 0


def make_probe(**env: str) -> Probe:
    return Probe(Settings.from_environment(env))


def sent(report: MemberReport) -> MemberReport:
    """What arrives of it: the agent refuses what is out of bounds."""
    found = decode(encode(report))
    assert isinstance(found, MemberReport)
    return found


def many_sites() -> list[dict[str, Any]]:
    """Traces of a hundred lines, later ones with fewer, larger allocations."""
    bed = AllocatorBed()
    for number, frames in enumerate(stacks(100)):
        for _ in range(100 - number):
            bed.alloc((number + 1) * MIB // 8, frames)
    return bed.trace
