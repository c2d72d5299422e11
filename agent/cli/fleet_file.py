"""Writes the fleet's word: whole or not at all, one after the other."""

from __future__ import annotations

import fcntl
import getpass
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import typer

from agent.actions.fleet import FleetOrders, parse
from agent.actions.vetoes import ANY
from agent.errors import ConfigError, KvtideError
from agent.plain import plain
from agent.policy.actions import LEVERS

Change = Callable[[FleetOrders, float], dict[str, Any]]

STANDARD_OUTPUT = Path("-")
_MODE = 0o644  # agents of other users read it


def change(file: Path, make: Change, told: str) -> None:
    """Change what the file says, and tell it; raises :class:`KvtideError`."""
    now = time.time()
    if file == STANDARD_OUTPUT:
        typer.echo(_encoded(FleetOrders(**make(FleetOrders(), now))).decode())
        return
    try:
        folder = os.open(file.absolute().parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # persons at the same time, on one host
            orders = _read(file)
            replace(file, _encoded(msgspec.structs.replace(orders, **make(orders, now))))
        finally:
            os.close(folder)
    except OSError as error:
        raise KvtideError(f"{error.filename or file}: {error.strerror}") from None
    typer.echo(plain(told))


def replace(file: Path, body: bytes) -> None:
    """Put ``body`` in the place of what is in ``file``; readers see the one or the other. Raises :class:`OSError`."""
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with new.open("xb") as out:
            out.write(body)
            out.flush()
            os.fsync(out.fileno())
        new.chmod(_MODE)
        new.rename(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def known(lever: str) -> None:
    """Raise :class:`ConfigError` unless there is such a lever."""
    if lever != ANY and lever not in LEVERS:
        raise ConfigError(f"lever: {plain(lever, 40)!r}: must be * or one of {', '.join(LEVERS)}")


def who() -> str:
    """Return who asks, and from where."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def _read(file: Path) -> FleetOrders:
    try:
        return parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return FleetOrders()
    except ValueError as error:
        raise KvtideError(f"{file}: {error}; move it away") from None


def _encoded(orders: FleetOrders) -> bytes:
    return msgspec.json.format(msgspec.json.encode(orders), indent=2) + b"\n"
