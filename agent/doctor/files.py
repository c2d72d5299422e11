"""The agent's configuration, its socket and its key, as this user finds them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from agent.config import DEFAULT_FILE, AgentConfig, load
from agent.doctor.findings import Finding, bad, ok, warn
from agent.errors import ConfigError

# What of this shell's environment wins over the file, as in the agent's.
_WINS = {"KVTIDE_SOCKET": "link.socket", "KVTIDE_KEY_FILE": "link.key_file"}


def configuration(file: Path | None, environ: Mapping[str, str]) -> tuple[Finding, AgentConfig | None]:
    """Return whether the configuration holds, and what it says; None where it does not."""
    where = file or DEFAULT_FILE
    wins = {name: environ[name] for name in _WINS if environ.get(name)}
    try:
        config = load(file, {_WINS[name]: value for name, value in wins.items()})
    except ConfigError as error:
        return bad("configuration", str(error), f"edit {where}: docs/configuration.md"), None
    except OSError as error:
        return bad("configuration", f"{where}: {error.strerror}", f"check --config {where}"), None
    told = str(where) if where.exists() else "all defaults; there is no file"
    return ok("configuration", told + "".join(f"; {name}={value}" for name, value in wins.items())), config


def link(socket: Path, key: Path, heard: str = "") -> Iterator[Finding]:
    """Yield what of the link's files is not as an engine of this user needs it.

    ``heard``: the socket where the agent that answers says that it listens, empty where none answers.
    """
    if heard and Path(heard).resolve() != socket.resolve():
        mend = f"give doctor the agent's own --config; with KVTIDE_SOCKET={heard} doctor and engines find that one"
        yield warn("socket", f"the agent listens at {heard}, not at {socket}", mend)
        return
    try:
        mode = socket.stat().st_mode
    except PermissionError:
        mend = "link.group, or mode of its folder: docs/configuration.md"
        yield bad("socket", f"{socket}: this user can't reach it", mend)
        return
    except OSError as error:
        yield bad("socket", f"{socket}: {error.strerror}", "is the agent running?")
        return
    if not stat.S_ISSOCK(mode):
        yield bad("socket", f"{socket}: is no socket", f"remove it, restart the agent: rm {socket}")
        return
    if not os.access(socket, os.R_OK | os.W_OK):
        mend = "add the engine's user to link.group: docs/configuration.md"
        yield warn("socket", f"{socket}: an engine of this user may not connect", mend)
    else:
        yield ok("socket", str(socket))
    yield _key(key)


def _key(key: Path) -> Finding:
    if not os.access(key.parent, os.X_OK) or not key.exists():
        return bad("key", f"{key}: is not there for this user", "restart the agent: it makes one")
    if not os.access(key, os.R_OK):
        return warn("key", f"{key}: an engine of this user may not read it", "link.group")
    if key.stat().st_mode & stat.S_IROTH:
        return bad("key", f"{key}: everybody can read it", f"chmod o= {key}")
    return ok("key", str(key))
