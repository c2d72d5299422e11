"""The agent-check: what is answered, to whom, and what hostile or slow peers get."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from agent.balancer.state import Weight
from agent.errors import KvtideError
from exporters import agent_check
from exporters.agent_check import AgentCheck, answer_of

ANY = ("127.0.0.1", 0)
FULL = Weight(since=0.0)
HALF = Weight(percent=50, since=0.0, why="it leaks", step="halved")
OUT = Weight(percent=0, mode="drain", since=0.0, step="isolated")
MAINT = Weight(percent=0, mode="maint", since=0.0, step="person")


@pytest.mark.parametrize(
    ("weight", "answer", "plain"),
    [
        (FULL, "ready up 100%\n", "up 100%\n"),
        (HALF, "ready up 50% # it leaks\n", "up 50% # it leaks\n"),
        (OUT, "drain\n", "up 0%\n"),
        (MAINT, "maint\n", "up 0%\n"),
        (Weight(since=0.0, why="a\nb # ü maint" + "x" * 500), f"ready up 100% # a?b ? ? maint{'x' * 147}\n", None),
    ],
)
def test_the_line(weight: Weight, answer: str, plain: str | None) -> None:
    assert answer_of(weight) == answer
    assert plain is None or answer_of(weight, admin_words=False) == plain


class Rig:
    """An agent-check with a port for all and one of engine ``own``, and what it is to say."""

    def __init__(self) -> None:
        self.weights = {"own": FULL, "m": HALF, "org/model~2": OUT}
        self.check = AgentCheck(self.weights.get, ANY, {"own": ANY}, admin_words=True)

    async def ask(self, said: bytes, own: bool = False) -> bytes:
        """Return all that is answered until the connection ends."""
        reader, writer = await asyncio.open_connection(*self.check.addresses[own])
        try:
            writer.write(said)
            return await asyncio.wait_for(reader.read(), 60.0)
        except ConnectionError:
            return b""
        finally:
            writer.close()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    found = Rig()
    await found.check.start()
    yield found
    found.weights.update(dict.fromkeys(found.weights, FULL))
    for server in found.check._servers:
        server.close()


async def test_an_engines_own_port_answers_whatever_is_said(rig: Rig) -> None:
    for said in (b"", b"m\n", b"x" * 100_000):
        assert await rig.ask(said, own=True) in (b"ready up 100%\n", b"")
    assert await rig.ask(b"", own=True) == b"ready up 100%\n"


async def test_the_port_for_all_wants_a_name(rig: Rig) -> None:
    assert await rig.ask(b"m\n") == b"ready up 50% # it leaks\n"
    assert await rig.ask(b"org/model~2\r\nmore") == b"drain\n"
    assert await rig.ask(b"unknown\n") == b""
    assert await rig.ask(b"\n") == b""
    assert await rig.ask(b"\xff\xfe\n") == b""
    assert rig.check.refused == 3


async def test_a_name_may_come_in_pieces(rig: Rig) -> None:
    reader, writer = await asyncio.open_connection(*rig.check.addresses[0])
    for piece in (b"org/", b"model", b"~2\n"):
        writer.write(piece)
        await asyncio.sleep(0.02)
    assert await reader.read() == b"drain\n"
    writer.close()


async def test_who_says_nothing_or_too_much_is_dropped(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_check, "ASK_SECONDS", 0.05)
    assert await rig.ask(b"") == b""
    assert await rig.ask(b"m" * 300) == b""
    assert rig.check._open == set()


async def test_connections_are_bounded_and_the_places_come_back(rig: Rig) -> None:
    socks = [socket.create_connection(rig.check.addresses[0]) for _ in range(agent_check.MOST_CONNECTIONS)]
    for _ in range(200):
        if len(rig.check._open) == agent_check.MOST_CONNECTIONS:
            break
        await asyncio.sleep(0.01)
    assert await rig.ask(b"m\n") == b""
    assert rig.check.refused == 1
    for sock in socks:
        sock.close()
    for _ in range(200):
        if not rig.check._open:
            break
        await asyncio.sleep(0.01)
    assert await rig.ask(b"m\n") == b"ready up 50% # it leaks\n"


async def test_the_answer_is_what_holds_now(rig: Rig) -> None:
    rig.weights["m"] = OUT
    assert await rig.ask(b"m\n") == b"drain\n"
    rig.weights["m"] = Weight(percent=10, since=0.0, step="restoring")
    assert await rig.ask(b"m\n") == b"ready up 10%\n"


async def test_a_port_in_use_is_told_by_its_setting() -> None:
    with socket.create_server(ANY) as taken:
        port = taken.getsockname()[1]
        check = AgentCheck(lambda _engine: FULL, ANY, {"m": ("127.0.0.1", port)}, admin_words=True)
        with pytest.raises(KvtideError, match=f"balancer.engines m: 127.0.0.1:{port}: the port is in use"):
            await check.start()
        assert check.addresses == []


async def test_the_end_waits_until_what_has_changed_was_told(rig: Rig) -> None:
    assert await rig.ask(b"m\n") == b"ready up 50% # it leaks\n"
    rig.weights["m"] = FULL
    address = rig.check.addresses[0]
    closing = asyncio.create_task(rig.check.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    assert await rig.ask(b"m\n") == b"ready up 100%\n"
    await closing
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_the_end_does_not_wait_for_who_no_longer_asks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_check, "LINGER_SECONDS", 0.1)
    await rig.ask(b"m\n")
    rig.weights["m"] = FULL
    await rig.check.close()
    assert rig.check.addresses == []


async def test_the_end_does_not_wait_where_nothing_has_changed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a person holds stays as it is."""
    monkeypatch.setattr(agent_check, "LINGER_SECONDS", 3600.0)
    await rig.ask(b"org/model~2\n")
    await rig.check.close()
