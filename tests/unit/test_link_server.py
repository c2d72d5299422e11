"""The agent's end of the link on a real event loop: the real client, returning engines, limits, time."""

from __future__ import annotations

import asyncio
import grp
import socket
from pathlib import Path

import pytest

from agent import link as link_module
from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from engine_hooks import wire
from engine_hooks.auth import PeerCredentials
from tests.unit.builders import make_pool_report, make_report
from tests.unit.conftest import StartLink
from tests.unit.support import KEY, Clock, RawPeer, Recorder, eventually_async, proven


async def test_the_real_client_connects_reports_and_is_checked(
    server: LinkServer, table: EngineTable, start_link: StartLink, socket_path: Path
) -> None:
    recorder = Recorder(name="chat", instance="abc")
    link = start_link(recorder)
    await proven(server)
    (engine,) = table.states(0.0, 0.0)
    assert (engine.engine, engine.instance, engine.link_up) == ("chat", "abc", True)
    assert engine.phase == "silent"
    await eventually_async(lambda: not recorder.orders.empty())
    assert recorder.orders.get_nowait() == wire.Order(sequence=1, kind="check")
    await eventually_async(lambda: link.up)
    link.send(make_report(make_pool_report(held=321)))
    await eventually_async(lambda: server.state().frames == 3)
    found = table._engines["abc"]
    assert found.report == make_report(make_pool_report(held=321))
    link.close()
    await proven(server, 0)
    assert not table._engines["abc"].link_up
    state = server.state()
    assert (state.socket, state.accepted, state.frames) == (str(socket_path), 1, 3)
    assert set(state.rejected_frames.values()) == set(state.refused_peers.values()) == {0}
    assert set(state.rejected_frames) == set(wire.WireError.REASONS)


async def test_the_pid_is_the_kernels_not_the_engines_word(
    server: LinkServer, table: EngineTable, start_link: StartLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "peer_credentials", lambda _sock: PeerCredentials(777, 0, 0))
    start_link(Recorder(pid=1))
    await proven(server)
    assert table.states(0.0, 0.0)[0].pid == 777


async def test_an_instance_that_returns_before_it_was_missed_replaces_its_old_connection(
    server: LinkServer, table: EngineTable, socket_path: Path
) -> None:
    first = await RawPeer(socket_path).connect()
    await first.shake_hands(KEY, instance="same")
    await proven(server)
    second = await RawPeer(socket_path).connect()
    await second.shake_hands(KEY, instance="same")
    assert isinstance(wire.decode(await first.receive()), wire.SignedOrder)
    assert await first.receive() == b""
    await second.send(wire.encode(make_report(steps=9)))
    await eventually_async(lambda: table._engines["same"].report is not None)
    assert table._engines["same"].link_up
    assert server.state().connections == 1
    first.sock.close()
    second.sock.close()


async def test_a_handshake_that_takes_longer_than_five_seconds_is_ended(
    link_config: LinkConfig, table: EngineTable
) -> None:
    clock = Clock()
    server = LinkServer(link_config, table, clock)
    server.start()
    try:
        idle = await RawPeer(link_config.socket).connect()
        halfway = await RawPeer(link_config.socket).connect()
        await halfway.challenge(KEY)
        done = await RawPeer(link_config.socket).connect()
        await done.shake_hands(KEY)
        await proven(server)
        await eventually_async(lambda: server.state().accepted == 3)
        clock.now += 5.0
        server.tick()
        assert server.state().refused_peers["timeout"] == 0
        clock.now += 0.001
        server.tick()
        assert server.state().refused_peers["timeout"] == 2
        assert isinstance(wire.decode(await idle.receive()), wire.Banner)
        assert await idle.receive() == b""
        assert await halfway.receive() == b""
        assert server.state().connections == 1
    finally:
        server.close()
        for peer in (idle, halfway, done):
            peer.sock.close()


@pytest.mark.parametrize(
    ("peer", "allow", "refused"),
    [
        (PeerCredentials(5, 4242, 4343), {}, 1),
        (PeerCredentials(5, 4242, 4343), {"allow_uids": (4242,)}, 0),
        (PeerCredentials(5, 4242, 4343), {"allow_gids": (4343,)}, 0),
        (PeerCredentials(5, 4242, 4343), {"allow_gids": (77,)}, 0),
        (PeerCredentials(5, 4242, 4343), {"group": grp.getgrgid(0).gr_name}, 1),
        (PeerCredentials(5, 4242, 0), {"group": grp.getgrgid(0).gr_name}, 0),
        (PeerCredentials(5, 4242, 4343), {"allow_uids": (4343,), "allow_gids": (4242,)}, 1),
        (PeerCredentials(5, 0, 4343), {}, 0),
    ],
)
async def test_only_users_that_are_allowed_get_a_word(
    link_config: LinkConfig,
    monkeypatch: pytest.MonkeyPatch,
    peer: PeerCredentials,
    allow: dict[str, tuple[int, ...] | str],
    refused: int,
) -> None:
    monkeypatch.setattr(link_module, "peer_credentials", lambda _sock: peer)
    monkeypatch.setattr(link_module, "peer_groups", lambda _sock: frozenset({peer.gid, 77}))
    server = LinkServer(link_config.model_copy(update=allow), EngineTable(3.0))
    server.start()
    client = await RawPeer(link_config.socket).connect()
    assert (await client.receive() == b"") == bool(refused)
    assert server.state().refused_peers["uid"] == refused
    client.sock.close()
    server.close()


async def test_connections_beyond_the_limit_are_refused_and_the_others_stay(
    server: LinkServer, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "MAX_CONNECTIONS", 2)
    peers = [await RawPeer(socket_path).connect() for _ in range(3)]
    heard = [await peer.receive() for peer in peers]
    assert [bool(data) for data in heard] == [True, True, False]
    assert server.state().refused_peers["limit"] == 1
    for peer in peers:
        peer.sock.close()


async def test_an_engine_that_does_not_read_its_orders_loses_them_and_stays(
    server: LinkServer, table: EngineTable, socket_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    peer = await RawPeer(socket_path).connect()
    await peer.shake_hands(KEY, instance="deaf")
    await proven(server)
    (connection,) = server._connections.values()
    for _ in range(3000):
        connection.order("check")
    assert "does not read its orders" in caplog.text
    await peer.send(wire.encode(make_report(steps=5)))
    await eventually_async(lambda: table._engines["deaf"].report is not None)
    peer.sock.shutdown(socket.SHUT_RDWR)
    peer.sock.close()
    await asyncio.sleep(0)
    await proven(server, 0)
