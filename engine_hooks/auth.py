"""Who is at the other end of the link: peer credentials, the key file, and what is signed with it.

An engine obeys whoever has bound the agent's path, and a path can be bound by anyone with write access to its
folder. Two things are checked at every connect, on both sides: the uid, as the kernel tells it, and knowledge of
the key, shown by an HMAC over fresh nonces. The key separates processes only as far as its file's permissions do.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import socket
import stat
import struct
from pathlib import Path
from typing import NamedTuple

KEY_BYTES = 32
_UCRED = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid

_SO_PEERGROUPS = 59  # asm-generic/socket.h; the socket module has no name for it
_GID = struct.Struct("I")
_MAX_GROUPS = 256  # Python takes no more than 1,024 bytes


class KeyFileError(Exception):
    """The key file can't be used; the text says why and what to do."""


class PeerCredentials(NamedTuple):
    """The peer's pid (0 when it isn't visible in our pid namespace), uid and gid."""

    pid: int
    uid: int
    gid: int


def peer_credentials(sock: socket.socket) -> PeerCredentials:
    """Return who connected to us or, on the connecting side, who called ``listen`` (SO_PEERCRED, unix(7))."""
    raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    return PeerCredentials(*_UCRED.unpack(raw))


def peer_groups(sock: socket.socket) -> frozenset[int]:
    """Return the peer's gids, supplementary ones included (SO_PEERGROUPS, Linux 4.13; its own gid alone before)."""
    own = peer_credentials(sock).gid
    try:
        raw = sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GID.size * _MAX_GROUPS)
    except OSError:
        return frozenset({own})
    return frozenset({own, *(gid for (gid,) in _GID.iter_unpack(raw))})


def read_key(path: Path) -> bytes:
    """Return the key in ``path``; raises :class:`KeyFileError`, whose text names the file and the remedy."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4 * KEY_BYTES)
    except OSError as error:
        raise KeyFileError(f"key file {path}: {error.strerror}") from None
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise KeyFileError(f"key file {path}: others may read or change it; run: chmod 0640 {path}")
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"key file {path}: not {KEY_BYTES} bytes in hex; remove it and restart the agent")
    return key


def create_key(path: Path) -> bool:
    """Write a new random key to ``path``, mode 0640, unless there is one; return whether one was written.

    Raises :class:`KeyFileError`. The file appears whole or not at all, also when two agents start at once.
    """
    if path.exists():
        return False
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            os.write(descriptor, secrets.token_hex(KEY_BYTES).encode() + b"\n")
        finally:
            os.close(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            return False
    except OSError as error:
        raise KeyFileError(f"key file {path}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()
    return True


def _mac(key: bytes, role: bytes, *parts: bytes) -> bytes:
    digest = hmac.new(key, b"kvtide/1 " + role, hashlib.sha256)
    for part in parts:
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()


class Session(NamedTuple):
    """One connection's fresh values: proofs can't be replayed in another, nor turned around by role."""

    key: bytes
    agent_nonce: bytes
    engine_nonce: bytes

    def agent_proof(self) -> bytes:
        """What only the holder of the key can answer to the engine's challenge."""
        return _mac(self.key, b"agent", self.agent_nonce, self.engine_nonce)

    def engine_proof(self) -> bytes:
        """What only the holder of the key can put into its Hello."""
        return _mac(self.key, b"engine", self.agent_nonce, self.engine_nonce)

    def sign_order(self, payload: bytes) -> bytes:
        """Return the signature of an encoded order in this session."""
        return _mac(self.key, b"order", self.agent_nonce, self.engine_nonce, payload)


def same(mac: bytes, expected: bytes) -> bool:
    """Compare two MACs in constant time."""
    return hmac.compare_digest(mac, expected)
