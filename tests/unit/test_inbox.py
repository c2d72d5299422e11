"""When the sockets of engines are read: at once, or together when somebody asks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from agent.inbox import Inbox
from tests.unit.support import eventually_async

AT_ONCE = 4


class Taken:
    """What an inbox has taken, in order; ``patient`` is what it is told."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.patient = True
        self.inbox = Inbox(self.frame, lambda: self.patient, AT_ONCE)
        self.ends: list[socket.socket] = []

    def peer(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.ends += [ours, theirs]
        self.inbox.add(ours)
        return theirs

    def frame(self, sock: socket.socket) -> bool:
        try:
            data = sock.recv(100)
        except BlockingIOError:
            return False
        self.frames.append(data)
        if not data or data == b"end all":
            for each in self.ends[::2]:
                self.inbox.remove(each)
        return bool(data)


@pytest.fixture
async def taken() -> Iterator[Taken]:
    found = Taken()
    found.inbox.look()
    yield found
    found.inbox.close()
    for each in found.ends:
        each.close()


async def test_a_patient_one_is_not_woken_and_takes_all_when_it_is_asked(taken: Taken) -> None:
    first, second = taken.peer(), taken.peer()
    for peer, data in ((first, b"1"), (first, b"2"), (second, b"3")):
        peer.send(data)
    await asyncio.sleep(0.05)
    assert taken.frames == []
    taken.inbox.read()
    assert sorted(taken.frames) == [b"1", b"2", b"3"]
    taken.inbox.read()
    assert len(taken.frames) == 3


async def test_each_has_its_turn_and_nobody_more_than_so_many(taken: Taken) -> None:
    talker, other = taken.peer(), taken.peer()
    for _ in range(2 * AT_ONCE):
        talker.send(b"again")
    other.send(b"once")
    taken.inbox.read()
    assert taken.frames.index(b"once") <= 1
    assert taken.frames.count(b"again") == AT_ONCE
    taken.inbox.read()
    assert taken.frames.count(b"again") == 2 * AT_ONCE


async def test_one_that_ends_others_in_the_same_round(taken: Taken) -> None:
    for peer in [taken.peer() for _ in range(3)]:
        peer.send(b"end all")
    taken.inbox.read()
    assert taken.frames == [b"end all"]


async def test_it_takes_at_once_where_it_has_no_patience_any_more_and_the_other_way_round(taken: Taken) -> None:
    peer = taken.peer()
    taken.patient = False
    taken.inbox.look()
    peer.send(b"now")
    await eventually_async(lambda: taken.frames == [b"now"])
    late = taken.peer()
    late.send(b"late")
    await eventually_async(lambda: taken.frames == [b"now", b"late"])
    taken.patient = True
    taken.inbox.look()
    peer.send(b"then")
    late.send(b"too")
    await asyncio.sleep(0.05)
    assert len(taken.frames) == 2
    taken.inbox.read()
    assert sorted(taken.frames[2:]) == [b"then", b"too"]
