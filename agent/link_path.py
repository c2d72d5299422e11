"""The path at which engines find the agent, and the key beside it: made, bound, watched, and bound again."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from agent.config import LinkConfig
from agent.errors import ConfigError, KvtideError
from engine_hooks.auth import KeyFileError, create_key, peer_credentials, read_key

logger = logging.getLogger("kvtide.agent")

BACKLOG = 256


class LinkPath:
    """``ready`` is called on the event loop when somebody has connected, see :meth:`accept`.

    ``key`` and ``gids``, the groups whose members may connect, are known from :meth:`bind` on.
    """

    def __init__(self, config: LinkConfig, ready: Callable[[], None]) -> None:
        self._config = config
        self._ready = ready
        self.key = b""
        self.gids: frozenset[int] = frozenset()
        self._key_seen: tuple[int, int, int] | None = None
        self._listener: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._accepting = True

    def bind(self) -> None:
        """Make the key if there is none, bind, and listen.

        Raises :class:`ConfigError`, or :class:`KvtideError` where another listens.
        """
        path = self._config.socket
        _prepare_folder(path)
        group = _group_id(self._config.group)
        self.gids = frozenset(self._config.allow_gids) | ({group} if group is not None else frozenset())
        key_path = self._config.key_path
        try:
            create_key(key_path)
            self.key = read_key(key_path)
            self._key_seen = _mark(key_path)
        except (KeyFileError, OSError) as error:
            raise ConfigError(f"link.key_file: {error}") from None
        if group is not None:
            _give_to_group(key_path, group)
        self._listener = _bind(path, self._config.mode, group)
        status = path.stat()
        self._identity = (status.st_dev, status.st_ino)
        asyncio.get_running_loop().add_reader(self._listener, self._ready)

    def close(self) -> None:
        """Listen no more, and remove the path, if it is still ours."""
        if self._listener is None:
            return
        self._unlisten()
        with contextlib.suppress(OSError):
            status = self._config.socket.stat()
            if (status.st_dev, status.st_ino) == self._identity:
                self._config.socket.unlink()

    def accept(self) -> socket.socket | None:
        """Return the next who has connected, None where there is nobody."""
        if self._listener is None:
            return None
        try:
            return self._listener.accept()[0]
        except BlockingIOError:
            return None
        except OSError as error:
            # Out of descriptors, say: the listener stays readable, so look again at the next tick, not at once.
            logger.warning("link: can't accept: %s", error.strerror)
            asyncio.get_running_loop().remove_reader(self._listener)
            self._accepting = False
            return None

    def tick(self) -> None:
        """Accept again after a failure."""
        if not self._accepting and self._listener is not None:
            asyncio.get_running_loop().add_reader(self._listener, self._ready)
            self._accepting = True

    def heal(self) -> str:
        """Bind again if somebody removed our socket; return why engines can't reach us, or nothing."""
        path = self._config.socket
        try:
            status = path.stat()
        except FileNotFoundError:
            if self._listener is not None:
                logger.warning("link: %s was removed; binding it again", path)
            self._unlisten()
            try:
                self.bind()
            except KvtideError as error:
                return str(error)
            return ""
        except OSError as error:
            return f"link.socket: {path}: {error.strerror}"
        if self._listener is None or (status.st_dev, status.st_ino) != self._identity:
            return f"link.socket: {path}: another process has bound it; engines that restart will not find this agent"
        return self._key_problem()

    def _key_problem(self) -> str:
        """Return why engines that connect anew will not know our key, or nothing. Only a file that changed is read.

        It is not written anew: who removes it wants another key, and that comes with the next start.
        """
        path = self._config.key_path
        try:
            seen = _mark(path)
            if seen == self._key_seen:
                return ""
            if read_key(path) == self.key:
                self._key_seen = seen
                return ""
            what = "has another key than this agent"
        except FileNotFoundError:
            what = "was removed"
        except (OSError, KeyFileError) as error:
            what = f"can't be read ({error})"
        return f"link.key_file: {path}: {what}; engines that connect now are refused: restart the agent"

    def _unlisten(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None


def _mark(path: Path) -> tuple[int, int, int]:
    """Return what changes when a file is written, replaced, or shut to readers; raises ``OSError``."""
    status = path.stat()
    return status.st_ino, status.st_ctime_ns, status.st_size


def _group_id(name: str | None) -> int | None:
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(
            f"link.group: {name!r}: there is no such group here; create it or leave the key out"
        ) from None


def _give_to_group(path: Path, group: int) -> None:
    try:
        if path.stat().st_gid != group:
            os.chown(path, -1, group)
    except OSError as error:
        raise ConfigError(
            f"link.group: {path}: can't be given to that group ({error.strerror}); "
            "run as root or as a member of the group, or leave the key out"
        ) from None


def _prepare_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    except OSError as error:
        raise _unusable(path, error.strerror) from None


def _unusable(path: Path, why: str | None) -> ConfigError:
    return ConfigError(
        f"link.socket: {path}: {why}; choose a path in a folder that this user can write, "
        "by --socket PATH or link.socket in the configuration, and set KVTIDE_SOCKET for the engines"
    )


def _bind(path: Path, mode: int, group: int | None) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        _remove_stale(path)
        sock.bind(str(path))
        if group is not None:
            _give_to_group(path, group)
        path.chmod(mode)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise _unusable(path, error.strerror) from None
    except KvtideError:
        sock.close()
        raise
    return sock


def _remove_stale(path: Path) -> None:
    """Remove a socket that nobody listens on any more.

    Raises :class:`ConfigError` when it isn't one, :class:`KvtideError` when somebody listens.
    """
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise _unusable(path, "exists and is not a socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise KvtideError(str(_unusable(path, f"is in use ({error.strerror or error})"))) from None
        holder = peer_credentials(probe)
    raise KvtideError(
        f"link.socket: {path}: pid {holder.pid} (uid {holder.uid}) listens there already; "
        "stop it, or choose another path by --socket PATH or link.socket"
    )
