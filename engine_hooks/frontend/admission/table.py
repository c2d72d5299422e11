"""What is in flight, by tenant and API server, in memory that the API servers of one engine share.

A check and its entry are made under a lock of the file, so that a quota holds in total. Each cell is written by its own
server alone: giving back needs no lock. A server that died is found by its process id and start time, and its entries
no longer count.

Layout, in native 64-bit words: magic, and how many tenants have had a place; the servers (pid, start, number); the
tenants' names; the cells by tenant and server (blocks, requests, long). Tenant 0 is everybody together, tenant 1
whoever finds no place.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine_hooks.frontend.admission.judge import InFlight, Refusal, Use
from engine_hooks.names import MAX_NAME

SERVERS, TENANTS = 16, 1024
MAGIC = 0x6B767469_64653031
_WORD = 8
_SERVER_WORDS, _CELL_WORDS = 4, 4
_USED_AT, _SERVERS_AT = 1, 8
_NAMES_AT = _SERVERS_AT + SERVERS * _SERVER_WORDS
_CELLS_AT = _NAMES_AT + TENANTS * MAX_NAME // _WORD
_ROW_WORDS = SERVERS * _CELL_WORDS
_EMPTY_ROW = bytes(_ROW_WORDS * _WORD)
SIZE_BYTES = (_CELLS_AT + TENANTS * _ROW_WORDS) * _WORD
_NAMES_FROM = _NAMES_AT * _WORD
EVERYBODY, OTHERS = 0, 1
LOOK_SECONDS = 0.1  # who is gone is looked for at most so often


class TableError(Exception):
    """The table can't be had; the text says why."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process: its start (clock ticks after boot) tells it from another that got its id later."""

    pid: int
    start: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """Return the living process ``pid``; None when there is none, or nothing but its remains."""
        try:
            after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return None
        return None if after_name[0] in (b"Z", b"X") else cls(pid, int(after_name[19]))


@dataclass(slots=True)
class Ticket:
    """What one request has entered; given back once. ``place``: its tenant's."""

    place: int
    use: Use
    live: bool = True


class Table:
    """One server's view. ``file``: shared with the other servers; None for a single server, which needs no lock.

    Only the event loop's thread may use it. ``clock``: monotonic seconds.
    """

    def __init__(
        self,
        file: int | None,
        clock: Callable[[], float],
        process_of: Callable[[int], Process | None] = Process.of,
        number: int = 0,
    ) -> None:
        self._file = file
        self._clock = clock
        self._process_of = process_of
        self._looked = float("-inf")
        self._map = mmap.mmap(-1 if file is None else file, SIZE_BYTES)
        self._words = memoryview(self._map).cast("q")
        self._places: dict[str, int] = {}
        own = process_of(os.getpid())
        if own is None:
            raise TableError("this process can't be told from others: there is no /proc")
        self._server = self._join(own, number)

    # -- the lock -----------------------------------------------------------------------------------------

    def try_lock(self) -> bool:
        """Take the lock if it is free. It is held for microseconds, but its holder may be stopped meanwhile."""
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        """Give the lock back."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    # -- with the lock ------------------------------------------------------------------------------------

    def enter(self, tenant: str, need: Use, judge: Callable[[InFlight], Refusal | None]) -> Ticket | Refusal:
        """Enter ``need`` for ``tenant`` unless ``judge`` refuses what is in flight; the lock is held meanwhile.

        A refusal stands only after those who are gone have been dropped.
        """
        place = self._place(tenant)
        if self._clock() - self._looked > 1.0:
            self._drop_the_dead()
        refusal = judge(self._flight(place))
        if refusal is not None and self._drop_the_dead():
            refusal = judge(self._flight(place))
        return refusal if refusal is not None else self._entered(place, need)

    def put(self, tenant: str, need: Use) -> Ticket:
        """Enter ``need`` for ``tenant``, which is in flight already, whatever else is; the lock is held meanwhile."""
        return self._entered(self._place(tenant), need)

    def _entered(self, place: int, need: Use) -> Ticket:
        self._add(place, need, 1)
        self._add(EVERYBODY, need, 1)
        return Ticket(place, need)

    def leave(self, ticket: Ticket) -> None:
        """Give back what ``ticket`` holds; once, however often it is called. Needs no lock."""
        if ticket.live:
            ticket.live = False
            self._add(EVERYBODY, ticket.use, -1)
            self._add(ticket.place, ticket.use, -1)

    def use_of(self, tenant: str) -> Use:
        """Return what is in flight for ``tenant`` on all servers."""
        place = self._find(tenant)
        return Use() if place is None else self._use(place)

    def total(self) -> Use:
        """Return what is in flight for everybody."""
        return self._use(EVERYBODY)

    def close(self) -> None:
        """Leave the table; return nothing to anybody: what this server held no longer counts."""
        self._clear(self._server)
        self._words.release()
        self._map.close()

    def others(self) -> int:
        """Return how many other servers live."""
        self._looked = float("-inf")
        self._drop_the_dead()
        return sum(self._words[self._owner_at(server)] != 0 for server in range(SERVERS) if server != self._server)

    # -- places -------------------------------------------------------------------------------------------

    def _join(self, own: Process, number: int) -> int:
        if self._words[0] == 0:
            self._words[0] = MAGIC
        elif self._words[0] != MAGIC:
            raise TableError("its file is of another kvtide")
        self._server = SERVERS
        self._drop_the_dead()
        for server in range(SERVERS):
            at = self._owner_at(server)
            if self._words[at] == 0:
                self._clear(server)
                self._words[at], self._words[at + 1], self._words[at + 2] = own.pid, own.start, number
                return server
        raise TableError(f"more than {SERVERS} API servers")

    def _drop_the_dead(self) -> bool:
        """Empty the places of servers that are gone; return whether there were any."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        found = False
        for server in range(SERVERS):
            at = self._owner_at(server)
            pid, start = self._words[at], self._words[at + 1]
            if server == self._server or pid == 0 or self._process_of(pid) == Process(pid, start):
                continue
            self._clear(server)
            found = True
        return found

    def _clear(self, server: int) -> None:
        nothing = bytes(_CELL_WORDS * _WORD)
        for tenant in range(TENANTS):
            at = self._cell_at(tenant, server) * _WORD
            self._map[at : at + len(nothing)] = nothing
        at = self._owner_at(server)
        self._words[at] = self._words[at + 1] = self._words[at + 2] = 0

    def _find(self, tenant: str) -> int | None:
        name = _padded(tenant)
        known = self._places.get(tenant)
        if known is not None:
            at = _NAMES_FROM + known * MAX_NAME
            if self._map[at : at + MAX_NAME] == name:
                return known
            del self._places[tenant]
        used = self._map[_NAMES_FROM : _NAMES_FROM + self._words[_USED_AT] * MAX_NAME]
        at = used.find(name)
        while at % MAX_NAME and at > 0:
            at = used.find(name, at + 1)
        if at < 0:
            return None
        if len(self._places) >= TENANTS:
            self._places.clear()
        place = at // MAX_NAME
        self._places[tenant] = place
        return place

    def _place(self, tenant: str) -> int:
        place = self._find(tenant)
        if place is not None:
            return place
        for place in range(OTHERS + 1, TENANTS):
            at = self._cell_at(place, 0) * _WORD
            if self._map[at : at + len(_EMPTY_ROW)] == _EMPTY_ROW:  # free, or nothing of it is in flight any more
                start = _NAMES_FROM + place * MAX_NAME
                self._map[start : start + MAX_NAME] = _padded(tenant)
                self._words[_USED_AT] = max(self._words[_USED_AT], place + 1)
                return place
        return OTHERS

    # -- cells --------------------------------------------------------------------------------------------

    def _flight(self, place: int) -> InFlight:
        # One of many without a place can't be blamed for all of them.
        use = self._use(place) if place != OTHERS else Use()
        return InFlight(use, self.total().blocks, self.use_of)

    def _use(self, place: int) -> Use:
        at = self._cell_at(place, 0)
        row = self._words[at : at + _ROW_WORDS].tolist()
        return Use(sum(row[0::_CELL_WORDS]), sum(row[1::_CELL_WORDS]), sum(row[2::_CELL_WORDS]))

    def _add(self, place: int, use: Use, sign: int) -> None:
        at = self._cell_at(place, self._server)
        words = self._words
        words[at] += sign * use.blocks
        words[at + 1] += sign * use.requests
        words[at + 2] += sign * use.long

    @staticmethod
    def _owner_at(server: int) -> int:
        return _SERVERS_AT + server * _SERVER_WORDS

    @staticmethod
    def _cell_at(place: int, server: int) -> int:
        return _CELLS_AT + (place * SERVERS + server) * _CELL_WORDS


def _padded(tenant: str) -> bytes:
    return (tenant.encode("ascii", "replace")[:MAX_NAME] or b"?").ljust(MAX_NAME, b"\0")
