"""Peers that have the key, and use it against their neighbours: all connections, a place, all names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from agent import link as link_module
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.members import MAX_PROCESSES, MemberTable
from agent.names import NodeNames
from engine_hooks import wire
from engine_hooks.auth import PeerCredentials
from engine_hooks.members import TORCH
from tests.unit.builders import make_hello, make_report
from tests.unit.support import KEY, RawPeer, eventually_async, proven

MOST = 8


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[PeerCredentials]:
    """Who connects next is the last of these for as long as they are as many."""
    told = [PeerCredentials(1, 0, 0)]
    monkeypatch.setattr(link_module, "peer_credentials", lambda _sock: told[-1])
    monkeypatch.setattr(link_module, "MAX_CONNECTIONS", MOST)
    return told


async def filled(path: Path, number: int = MOST) -> list[RawPeer]:
    crowd = [await RawPeer(path).connect() for _ in range(number)]
    for index, peer in enumerate(crowd):
        await peer.shake_hands(KEY, instance=f"crowd-{index}", name=f"crowd-{index}")
    return crowd


@pytest.mark.parametrize("other", [PeerCredentials(2, 0, 0), PeerCredentials(1, 1000, 0), PeerCredentials(0, 1000, 0)])
async def test_one_process_that_holds_every_connection_loses_one_to_another(
    server: LinkServer, table: EngineTable, socket_path: Path, peers: list[PeerCredentials], other: PeerCredentials
) -> None:
    crowd = await filled(socket_path)
    await proven(server, MOST)
    peers.append(other)
    server._config = server._config.model_copy(update={"allow_uids": (1000,)})
    engine = await RawPeer(socket_path).connect()
    await engine.shake_hands(KEY, instance="engine", name="engine")
    await eventually_async(lambda: any(state.engine == "engine" and state.link_up for state in table.states(0.0, 0.0)))
    assert server.state().connections == MOST
    assert server.state().refused_peers["limit"] == 1
    peers.append(peers[0])
    again = await RawPeer(socket_path).connect()
    assert await again.receive() == b"", "the crowd gets no second place for it"
    for peer in (*crowd, engine, again):
        peer.sock.close()


async def test_processes_that_hold_one_connection_each_keep_them(
    server: LinkServer, socket_path: Path, peers: list[PeerCredentials], monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: Iterator[int] = count(10)
    monkeypatch.setattr(link_module, "peer_credentials", lambda _sock: PeerCredentials(next(pids), 0, 0))
    crowd = await filled(socket_path)
    await proven(server, MOST)
    late = await RawPeer(socket_path).connect()
    assert await late.receive() == b""
    assert server.state().connections == MOST
    for peer in (*crowd, late):
        peer.sock.close()


async def test_a_process_that_is_not_visible_does_not_take_the_place_of_another(
    server: LinkServer, table: EngineTable, socket_path: Path, peers: list[PeerCredentials]
) -> None:
    peers.append(PeerCredentials(0, 0, 0))
    engine = await RawPeer(socket_path).connect()
    await engine.shake_hands(KEY, instance="same", name="engine")
    await proven(server)
    thief = await RawPeer(socket_path).connect()
    await thief.shake_hands(KEY, instance="same", name="thief")
    assert await thief.receive() == b""
    assert server.state().refused_peers["handshake"] == 1
    await engine.send(wire.encode(make_report(steps=9)))
    await eventually_async(lambda: table._engines["same"].report is not None)
    assert [state.engine for state in table.states(0.0, 0.0)] == ["engine"]
    for peer in (engine, thief):
        peer.sock.close()


async def test_one_that_is_not_visible_comes_back_before_its_end_was_seen(
    server: LinkServer, table: EngineTable, socket_path: Path, peers: list[PeerCredentials]
) -> None:
    peers.append(PeerCredentials(0, 0, 0))
    first = await RawPeer(socket_path).connect()
    await first.shake_hands(KEY, instance="same", name="engine")
    await proven(server)
    second = await RawPeer(socket_path).connect()
    session = await second.challenge(KEY)
    (old,) = (sock for sock, other in server._connections.items() if other.hello is not None)
    asyncio.get_running_loop().remove_reader(old)  # its end is there, and not looked at yet
    first.sock.close()
    await second.send(wire.encode(make_hello(instance="same", name="engine", mac=session.engine_proof())))
    await second.send(wire.encode(make_report(steps=9)))
    await eventually_async(lambda: table._engines["same"].report is not None)
    assert table._engines["same"].link_up
    second.sock.close()


def test_names_push_no_process_out() -> None:
    members = MemberTable(3.0, NodeNames())
    for number in range(3):
        members.hello(make_hello(role=TORCH, name=f"train-{number}", instance=f"own-{number}"), 100 + number, 0.0)
    for number in range(3 * MAX_PROCESSES):
        members.hello(make_hello(role=TORCH, name=f"!{number}", instance=f"bad-{number}"), 666, 1.0)
    members.hello(make_hello(role=TORCH, name="zz", instance="late"), 200, 2.0)
    names = [state.process for state in members.processes(3.0)]
    assert len(names) == MAX_PROCESSES
    assert {"train-0", "train-1", "train-2", "zz"} <= set(names)
    assert names == sorted(names)


async def test_all_processes_of_64_engines_may_come_at_once_and_of_more_the_oldest_that_said_nothing_goes(
    server: LinkServer, socket_path: Path
) -> None:
    """After a restart of the agent all of them connect before the first has shown its key."""
    silent = [await RawPeer(socket_path).connect() for _ in range(3 * 64)]
    await eventually_async(lambda: server.state().accepted == len(silent))
    assert server.state().refused_peers["limit"] == 0
    engine = await RawPeer(socket_path).connect()
    await engine.shake_hands(KEY, instance="engine", name="engine")
    await proven(server, 1)
    assert server.state().refused_peers["limit"] == 1
    assert await silent[0].receive() != b""  # the challenge
    assert await silent[0].receive() == b""
    for peer in (*silent, engine):
        peer.sock.close()
