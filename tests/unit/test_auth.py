"""The key file, what is proven with it, and what the kernel says of a peer."""

from __future__ import annotations

import os
import socket
import stat
import tempfile
import threading
from pathlib import Path

import pytest

from engine_hooks.auth import (
    KEY_BYTES,
    KeyFileError,
    Session,
    create_key,
    peer_credentials,
    peer_groups,
    read_key,
    same,
)

KEY = b"k" * KEY_BYTES


def test_a_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert create_key(path) is True
    assert stat.S_IMODE(path.stat().st_mode) & ~0o640 == 0
    first = read_key(path)
    assert len(first) == KEY_BYTES
    assert create_key(path) is False
    assert read_key(path) == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_keys_differ(tmp_path: Path) -> None:
    create_key(tmp_path / "a")
    create_key(tmp_path / "b")
    assert read_key(tmp_path / "a") != read_key(tmp_path / "b")


def test_of_many_creators_at_once_one_wins_and_all_read_its_key(tmp_path: Path) -> None:
    path, gate = tmp_path / "key", threading.Barrier(8)
    made: list[bool] = []
    keys: list[bytes] = []

    def start() -> None:
        gate.wait()
        made.append(create_key(path))
        keys.append(read_key(path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]
    assert len(keys) == 8
    assert len(set(keys)) == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


def test_a_creator_that_lost_the_race_after_looking_keeps_the_other_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    create_key(path)
    first = read_key(path)
    monkeypatch.setattr(Path, "exists", lambda _self: False)
    assert create_key(path) is False
    assert read_key(path) == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["key"]


@pytest.mark.parametrize("mode", [0o644, 0o641, 0o642, 0o660, 0o666])
def test_a_key_that_others_may_read_or_change_is_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    create_key(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError) as caught:
        read_key(path)
    assert str(caught.value) == f"key file {path}: others may read or change it; run: chmod 0640 {path}"


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400])
def test_private_modes_are_taken(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    create_key(path)
    path.chmod(mode)
    assert len(read_key(path)) == KEY_BYTES


@pytest.mark.parametrize(
    "text", [b"", b"00" * 31, b"00" * 33, b"0" * 63, b"zz" * 32, b"\xff" * 64, b"\0" * 32, b"00" * 4000]
)
def test_what_is_no_key_is_refused_with_the_remedy(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(text)
    path.chmod(0o640)
    with pytest.raises(KeyFileError) as caught:
        read_key(path)
    assert str(caught.value) == f"key file {path}: not 32 bytes in hex; remove it and restart the agent"


def test_a_missing_key_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"key: No such file or directory$"):
        read_key(tmp_path / "key")
    with pytest.raises(KeyFileError, match=r"no/key: No such file or directory$"):
        create_key(tmp_path / "no" / "key")
    with pytest.raises(KeyFileError, match=r"Is a directory$"):
        read_key(tmp_path)


def test_proofs_differ_by_role_key_and_either_nonce() -> None:
    session = Session(KEY, b"a" * 32, b"e" * 32)
    others = [
        Session(b"x" * KEY_BYTES, b"a" * 32, b"e" * 32),
        Session(KEY, b"b" * 32, b"e" * 32),
        Session(KEY, b"a" * 32, b"f" * 32),
        Session(KEY, b"e" * 32, b"a" * 32),
        Session(KEY, b"a" * 31, b"a" + b"e" * 32),
    ]
    proofs = [session.agent_proof(), session.engine_proof(), session.sign_order(b""), session.sign_order(b"p")]
    for other in others:
        proofs += [other.agent_proof(), other.engine_proof(), other.sign_order(b"p")]
    assert len(set(proofs)) == len(proofs)
    assert {len(proof) for proof in proofs} == {32}
    assert Session(KEY, b"a" * 32, b"e" * 32).agent_proof() == session.agent_proof()


def test_same_compares_whole_macs() -> None:
    mac = Session(KEY, b"a" * 32, b"e" * 32).agent_proof()
    assert same(mac, bytes(mac))
    assert not same(mac[:-1], mac)
    assert not same(b"", mac)
    assert not same(mac[:-1] + bytes([mac[-1] ^ 1]), mac)


def _ours() -> tuple[int, int, int]:
    return os.getpid(), os.geteuid(), os.getegid()


def test_the_kernel_tells_both_ends_of_a_pair_who_the_other_is() -> None:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with left, right:
        assert peer_credentials(left) == _ours()
        assert peer_credentials(right) == _ours()


def test_a_client_sees_who_listens_and_a_server_who_connects(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen(1)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:  # connects, and lives until the pipe closes
            try:
                os.close(write_end)
                client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                client.connect(str(tmp_path / "s"))
                client.send(str(peer_credentials(client).pid).encode())
                os.read(read_end, 1)
            finally:
                os._exit(0)
        os.close(read_end)
        try:
            server, _ = listener.accept()
            with server:
                assert peer_credentials(server) == (child, os.geteuid(), os.getegid())
                assert server.recv(20) == str(os.getpid()).encode()
        finally:
            os.close(write_end)
            os.waitpid(child, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change a process's groups")
def test_peer_groups_include_supplementary_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(Path(tempfile.mkdtemp(dir=tmp_path)) / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        monkeypatch.chdir(tmp_path)
        listener.bind(os.path.relpath(path))  # short enough whatever the folder
        listener.listen(1)
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([4242, 4343])
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                    sock.connect(os.path.relpath(path))
                    sock.recv(1)
            finally:
                os._exit(0)
        peer, _ = listener.accept()
        with peer:
            assert peer_groups(peer) == {os.getegid(), 4242, 4343}
        os.waitpid(child, 0)
