"""What peers that misbehave can do to the agent's end of the link: be counted, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agent.engines import EngineTable
from agent.link import LinkServer
from engine_hooks import wire
from tests.unit.builders import make_hello, make_report
from tests.unit.conftest import StartLink
from tests.unit.support import KEY, RawPeer, Recorder, eventually_async, proven


async def test_garbage_after_the_handshake_is_counted_by_reason_and_hurts_nobody(
    server: LinkServer, table: EngineTable, start_link: StartLink, socket_path: Path
) -> None:
    link = start_link(Recorder(instance="good", name="good"))
    await proven(server)
    bad = await RawPeer(socket_path).connect()
    await bad.shake_hands(KEY, instance="bad", name="bad")
    await proven(server, 2)
    noise = random.Random(1)
    for _ in range(50):
        await bad.send(b"\xc1" + noise.randbytes(noise.randrange(300)))
    await bad.send(b"\0" * 70_000)
    await bad.send(b"\x93\x07\xa6report\x80")
    await bad.send(b"\x93\x01\xa6gossip\x80")
    await bad.send(b"\x93\x01\xa6report" + b"\x91" * 60_000)
    await bad.send(wire.encode(wire.Challenge(nonce=b"n" * 32)))
    await eventually_async(lambda: server.state().rejected_frames["order"] == 1)
    assert server.state().rejected_frames == {
        "malformed": 51,
        "oversize": 1,
        "unknown_version": 1,
        "unknown_kind": 1,
        "order": 1,
        "rate": 0,
    }
    await eventually_async(lambda: link.up)
    link.send(make_report(steps=77))
    await bad.send(wire.encode(make_report(steps=78)))
    await eventually_async(lambda: table._engines["good"].report and table._engines["bad"].report)
    assert [table._engines[name].report.steps for name in ("good", "bad")] == [77, 78]
    bad.sock.close()
    await proven(server, 1)


@pytest.mark.parametrize("frame", [b"\xc1 noise", b"\0" * 70_000, wire.encode(make_report())])
async def test_garbage_before_the_handshake_ends_that_connection_alone(
    server: LinkServer, table: EngineTable, start_link: StartLink, socket_path: Path, frame: bytes
) -> None:
    start_link(Recorder())
    await proven(server)
    peer = await RawPeer(socket_path).connect()
    assert isinstance(wire.decode(await peer.receive()), wire.Banner)
    await peer.send(frame)
    assert await peer.receive() == b""
    state = server.state()
    assert state.refused_peers == {"handshake": 1, "uid": 0, "limit": 0, "key": 0, "timeout": 0}
    assert set(state.rejected_frames.values()) == {0}
    assert state.connections == 1
    assert len(table.states(0.0, 0.0)) == 1
    peer.sock.close()


async def test_a_peer_without_the_key_never_reaches_the_table(
    server: LinkServer, table: EngineTable, socket_path: Path
) -> None:
    peer = await RawPeer(socket_path).connect()
    await peer.challenge(KEY)
    await peer.send(wire.encode(make_hello(mac=b"\0" * 32)))
    assert await peer.receive() == b""
    assert server.state().refused_peers["key"] == 1
    assert table.states(0.0, 0.0) == ()
    peer.sock.close()
