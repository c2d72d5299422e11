"""What a trace of the allocator says, in one pass: what did not end, who allocates most, what failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agent.plain import plain
from agent.snapshot.checks import Checks, Place
from agent.snapshot.interning import Interning
from agent.snapshot.model import BusySite, OomEvent, OpenSite, Stacks, TraceFacts

_OOMS = 50  # kept, the newest
TENTHS = 10


class Tally:
    """Goes through one device's trace. A trace is a ring: what began before it is not in it, and is not counted."""

    def __init__(self, device: int, entries: list[Any], place: Place, checks: Checks, interning: Interning) -> None:
        self._device = device
        self._entries = len(entries)
        self._place = place
        self._checks = checks
        self._interning = interning
        self._actions: dict[str, int] = {}
        self._open: dict[int, tuple[int, int, int]] = {}  # address: when (its number), bytes, stack
        self._busy: dict[int, list[int]] = {}  # stack: allocations, bytes
        self._awaiting: dict[int, int] = {}  # address: bytes
        self._ooms: list[tuple[int, int, int, int, int, int]] = []
        self._ooms_total = 0
        self._first_us: float | None = None
        self._last_us: float | None = None
        self._reserved = self._allocated = 0  # against the beginning of the trace
        self._go_through(entries)

    def _go_through(self, entries: list[Any]) -> None:
        actions = self._actions
        unknown: dict[str, int] = {}
        known = {
            "alloc": self._alloc,
            "free_requested": self._free_requested,
            "free_completed": self._free_completed,
            "segment_alloc": self._grow,
            "segment_map": self._grow,
            "segment_free": self._shrink,
            "segment_unmap": self._shrink,
            "oom": self._oom,
            "snapshot": _nothing,
        }
        for n, entry in enumerate(entries):
            if type(entry) is not dict:
                raise self._checks.wrong((*self._place, n), entry, "a dict")
            action, size = entry.get("action"), entry.get("size", 0)
            if type(action) is not str:
                raise self._checks.wrong((*self._place, n, "action"), action, "text, such as alloc")
            if type(size) is not int or size < 0:
                raise self._checks.wrong((*self._place, n, "size"), size, "an integer of 0 or more")
            take = known.get(action)
            if take is None:
                unknown[action[:40]] = unknown.get(action[:40], 0) + 1
                continue
            actions[action] = actions.get(action, 0) + 1
            take(n, entry, size)
        if unknown:
            names = plain(", ".join(sorted(unknown)[:5]))
            self._checks.note(f"{sum(unknown.values()):,} trace entries of unknown kinds were passed over: {names}")
        if entries:
            self._first_us, self._last_us = self._clock(entries, 0), self._clock(entries, -1)

    def _alloc(self, n: int, entry: dict[Any, Any], size: int) -> None:
        stack = self._interning.number(entry.get("frames"), self._place, n)
        self._open[self._address(n, entry)] = (n, size, stack)
        self._allocated += size
        row = self._busy.get(stack)
        if row is None:
            self._busy[stack] = [1, size]
        else:
            row[0] += 1
            row[1] += size

    def _free_requested(self, n: int, entry: dict[Any, Any], size: int) -> None:
        self._awaiting[self._address(n, entry)] = size

    def _free_completed(self, n: int, entry: dict[Any, Any], size: int) -> None:
        address = self._address(n, entry)
        self._awaiting.pop(address, None)
        self._open.pop(address, None)
        self._allocated -= size

    def _grow(self, _n: int, _entry: dict[Any, Any], size: int) -> None:
        self._reserved += size

    def _shrink(self, _n: int, _entry: dict[Any, Any], size: int) -> None:
        self._reserved -= size

    def _oom(self, n: int, entry: dict[Any, Any], size: int) -> None:
        free = self._checks.number(entry, "device_free", (*self._place, n))
        stack = self._interning.number(entry.get("frames"), self._place, n)
        self._ooms_total += 1
        self._ooms.append((n, size, free, stack, self._reserved, self._allocated))
        del self._ooms[:-_OOMS]

    def _address(self, n: int, entry: dict[Any, Any]) -> int:
        address = entry.get("addr")
        if type(address) is not int:
            raise self._checks.wrong((*self._place, n, "addr"), address, "an integer")
        return address

    def _clock(self, entries: list[Any], at: int) -> float | None:
        value = entries[at].get("time_us")
        if value is None or type(value) in {int, float}:
            return None if value is None else float(value)
        raise self._checks.wrong((*self._place, at % len(entries), "time_us"), value, "a number")

    def facts(self, stacks: Stacks) -> TraceFacts:
        """Return what was found, by call site."""
        sites = stacks.sites
        busy: dict[int, list[int]] = {}
        for stack, (count, size) in self._busy.items():
            row = busy.setdefault(sites[stack], [0, 0])
            row[0] += count
            row[1] += size
        seconds = None
        if self._first_us is not None and self._last_us is not None:
            seconds = max(0.0, (self._last_us - self._first_us) / 1e6)
        return TraceFacts(
            device=self._device,
            entries=self._entries,
            seconds=seconds,
            actions=self._actions,
            open_sites=self._open_sites(sites, busy),
            busy_sites=tuple(
                BusySite(site=site, count=count, size=size)
                for site, (count, size) in sorted(busy.items(), key=lambda item: -item[1][1])
            ),
            awaiting_count=len(self._awaiting),
            awaiting_size=sum(self._awaiting.values()),
            ooms=tuple(
                OomEvent(
                    size=size,
                    device_free=free,
                    stack=stack,
                    entries_before_end=self._entries - 1 - n,
                    reserved_after=self._reserved - reserved,
                    allocated_after=self._allocated - allocated,
                )
                for n, size, free, stack, reserved, allocated in self._ooms
            ),
            ooms_total=self._ooms_total,
        )

    def _open_sites(self, sites: list[int], busy: dict[int, list[int]]) -> tuple[OpenSite, ...]:
        rows: dict[int, list[int]] = {}
        for n, size, stack in self._held(self._open.items()):
            row = rows.setdefault(sites[stack], [0, 0, 0])
            row[0] += 1
            row[1] += size
            row[2] |= 1 << (n * TENTHS // self._entries)
        return tuple(
            OpenSite(site=site, count=count, size=size, allocations=busy[site][0], tenths=tenths.bit_count())
            for site, (count, size, tenths) in sorted(rows.items(), key=lambda item: -item[1][1])
        )

    def _held(self, items: Iterable[tuple[int, tuple[int, int, int]]]) -> Iterable[tuple[int, int, int]]:
        """Leave out what only waits for another stream: somebody has let go of it."""
        return (row for address, row in items if address not in self._awaiting)


def _nothing(_n: int, _entry: dict[Any, Any], _size: int) -> None:
    """A snapshot was taken: that is no allocation."""
