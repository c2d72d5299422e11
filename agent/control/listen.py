"""Where the control socket is, and who may use it: whoever may open it, by its permissions."""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import socket
import stat
from pathlib import Path

from agent.config import MAX_SOCKET_PATH, LinkConfig

logger = logging.getLogger("kvtide.agent")

MODE = 0o660
NAME, USUAL_LINK = "control.sock", "agent.sock"
VARIABLE = "KVTIDE_CONTROL"
WAITING = 16


def control_path(link: Path) -> Path:
    """Return the control socket's path: beside the link's, so that two agents in one folder have two.

    ``KVTIDE_CONTROL`` names another: where containers of engines see the link's folder, their root could open it there.
    """
    if elsewhere := os.environ.get(VARIABLE):
        return Path(elsewhere)
    return link.with_name(NAME) if link.name == USUAL_LINK else link.with_name(f"{link.name}.{NAME}")


class ControlSocket:
    """Bound while the agent lives. ``problem``: why there is none; the agent goes on without it."""

    def __init__(self, link: LinkConfig) -> None:
        self.path = control_path(link.socket)
        self.problem = ""
        self.listener: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        try:
            self.listener = self._bind(link.control_group)
        except (OSError, KeyError) as error:
            told = error.strerror if isinstance(error, OSError) else f"there is no group {link.control_group}"
            self.problem = f"{self.path}: {told}"
            logger.warning("no control socket: %s; nobody can order anything", self.problem)

    def close(self) -> None:
        """Remove the path, if it is still ours."""
        if self.listener is None:
            return
        self.listener.close()
        with contextlib.suppress(OSError):
            status = self.path.stat()
            if (status.st_dev, status.st_ino) == self._identity:
                self.path.unlink()

    def _bind(self, group: str | None) -> socket.socket:
        if len(str(self.path).encode()) > MAX_SOCKET_PATH:
            raise OSError(None, f"the path is longer than {MAX_SOCKET_PATH} bytes")
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise OSError(None, "exists and is not a socket")
            self.path.unlink()  # of an agent that is gone: the link's path is ours alone already
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # nobody else before the group is set
        try:
            sock.bind(str(self.path))
            if group is not None:
                os.chown(self.path, -1, grp.getgrnam(group).gr_gid)
            self.path.chmod(MODE)
            sock.listen(WAITING)
            sock.setblocking(False)
            status = self.path.stat()
            self._identity = (status.st_dev, status.st_ino)
        except (OSError, KeyError):
            sock.close()
            raise
        finally:
            os.umask(before)
        return sock
