"""The path of the link: who may bind it, what is replaced, and what happens when somebody takes it away."""

# ruff: noqa: ASYNC240 - the calls on paths take no time here
from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.errors import KvtideError
from agent.link import LinkServer
from engine_hooks.auth import read_key
from tests.unit.support import KEY, RawPeer, eventually_async, write_key


def refusal(config: LinkConfig, exit_code: int = 2) -> str:
    with pytest.raises(KvtideError) as caught:
        LinkServer(config, EngineTable(3.0)).start()
    text = str(caught.value)
    assert "\n" not in text
    assert caught.value.exit_code == exit_code
    return text


async def reachable(server: LinkServer, path: Path) -> bool:
    peer = await RawPeer(path).connect()
    before = server.state().connections
    await peer.shake_hands(KEY)
    await eventually_async(lambda: server.state().connections == before + 1)
    peer.sock.close()
    await eventually_async(lambda: server.state().connections == before)
    return True


async def test_socket_and_key_have_their_modes(tmp_path: Path, table: EngineTable) -> None:
    config = LinkConfig(socket=tmp_path / "new" / "s")
    server = LinkServer(config, table)
    server.start()
    status = config.socket.stat()
    assert stat.S_ISSOCK(status.st_mode)
    assert stat.S_IMODE(status.st_mode) == 0o660
    assert config.key_path == tmp_path / "new" / "agent.key"
    assert stat.S_IMODE(config.key_path.stat().st_mode) & ~0o640 == 0
    assert len(read_key(config.key_path)) == 32
    server.close()
    assert not config.socket.exists()
    assert config.key_path.exists()


async def test_the_mode_can_be_chosen(socket_path: Path, key_file: Path, table: EngineTable) -> None:
    server = LinkServer(LinkConfig(socket=socket_path, key_file=key_file, mode=0o600), table)
    server.start()
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o600
    server.close()


async def test_a_key_that_is_there_stays(server: LinkServer, key_file: Path, socket_path: Path) -> None:
    assert read_key(key_file) == KEY
    assert await reachable(server, socket_path)


async def test_a_stale_socket_is_replaced(link_config: LinkConfig, table: EngineTable) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
        dead.bind(str(link_config.socket))
    before = link_config.socket.stat().st_ctime_ns
    server = LinkServer(link_config, table)
    server.start()
    assert link_config.socket.stat().st_ctime_ns != before
    assert await reachable(server, link_config.socket)
    server.close()


async def test_a_second_agent_is_told_who_is_there(server: LinkServer, link_config: LinkConfig) -> None:
    text = refusal(link_config, exit_code=1)
    assert text == (
        f"link.socket: {link_config.socket}: pid {os.getpid()} (uid {os.geteuid()}) listens there already; "
        "stop it, or choose another path by --socket PATH or link.socket"
    )
    assert server.heal() == ""
    assert await reachable(server, link_config.socket)


async def test_a_socket_of_another_type_is_not_taken_over(link_config: LinkConfig) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(link_config.socket))
        other.listen(1)
        assert "is in use" in refusal(link_config, exit_code=1)
        assert link_config.socket.exists()


async def test_a_regular_file_is_not_removed(link_config: LinkConfig) -> None:
    link_config.socket.write_text("precious")
    text = refusal(link_config)
    assert text.startswith(f"link.socket: {link_config.socket}: exists and is not a socket; ")
    assert "--socket PATH" in text
    assert link_config.socket.read_text() == "precious"


@pytest.mark.parametrize("parent", ["file", "file/deeper", "/proc/kvtide"])
async def test_a_folder_that_cannot_be_made(tmp_path: Path, key_file: Path, parent: str) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / parent / "s"  # an absolute parent replaces tmp_path
    text = refusal(LinkConfig(socket=path, key_file=key_file))
    assert text.startswith(f"link.socket: {path}: ")
    assert "choose a path in a folder that this user can write" in text


async def test_a_folder_that_cannot_be_written(tmp_path: Path, key_file: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write to any folder")
    folder = tmp_path / "sealed"
    folder.mkdir(mode=0o500)
    assert "Permission denied" in refusal(LinkConfig(socket=folder / "s", key_file=key_file))


async def test_bad_keys_and_groups_are_named(tmp_path: Path, socket_path: Path, key_file: Path) -> None:
    write_key(tmp_path / "open").chmod(0o644)
    text = refusal(LinkConfig(socket=socket_path, key_file=tmp_path / "open"))
    assert text.startswith("link.key_file: key file ")
    assert text.endswith(f"chmod 0640 {tmp_path / 'open'}")
    text = refusal(LinkConfig(socket=socket_path, key_file=key_file, group="no-such-group"))
    assert text.startswith("link.group: 'no-such-group': there is no such group here")
    assert not socket_path.exists()


async def test_a_removed_socket_is_bound_again_and_connections_stay(
    server: LinkServer, socket_path: Path, table: EngineTable
) -> None:
    old = await RawPeer(socket_path).connect()
    await old.shake_hands(KEY, instance="old")
    await eventually_async(lambda: server.state().connections == 1)
    socket_path.unlink()
    assert server.heal() == ""
    assert stat.S_IMODE(socket_path.stat().st_mode) == 0o660
    assert server.heal() == ""
    assert await reachable(server, socket_path)
    assert server.state().connections == 1
    old.sock.close()


async def test_a_key_that_is_gone_or_another_is_a_reason_until_it_is_back(
    server: LinkServer, socket_path: Path, key_file: Path
) -> None:
    refused = "; engines that connect now are refused: restart the agent"
    assert server.heal() == ""
    key_file.unlink()
    assert server.heal() == f"link.key_file: {key_file}: was removed{refused}"
    assert not key_file.exists(), "whoever removes it wants another at the next start"
    write_key(key_file, bytes(32))
    assert server.heal() == f"link.key_file: {key_file}: has another key than this agent{refused}"
    write_key(key_file)
    assert server.heal() == ""
    key_file.chmod(0o644)
    assert server.heal().startswith(f"link.key_file: {key_file}: can't be read (key file {key_file}: others may read")
    key_file.chmod(0o640)
    assert server.heal() == ""
    # The twin: a file that was written again with the same key is none.
    write_key(key_file)
    os.utime(key_file)
    assert server.heal() == ""
    assert await reachable(server, socket_path)


async def test_a_path_that_cannot_be_bound_again_is_a_reason_until_it_can(
    tmp_path: Path, key_file: Path, table: EngineTable
) -> None:
    folder = tmp_path / "d"
    server = LinkServer(LinkConfig(socket=folder / "s", key_file=key_file), table)
    server.start()
    (folder / "s").unlink()
    folder.rmdir()
    folder.write_text("")
    assert server.heal().startswith(f"link.socket: {folder / 's'}: ")
    folder.unlink()
    assert server.heal() == ""
    assert await reachable(server, folder / "s")
    server.close()


async def test_a_path_that_somebody_else_bound_is_reported_and_left_to_them(
    link_config: LinkConfig, table: EngineTable
) -> None:
    server = LinkServer(link_config, table)
    server.start()
    path = link_config.socket
    path.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as theirs:
        theirs.bind(str(path))
        theirs.listen(1)
        expected = f"link.socket: {path}: another process has bound it; engines that restart will not find this agent"
        assert server.heal() == expected
        server.close()
        assert path.exists()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
