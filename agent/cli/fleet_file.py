"""Writes the fleet's word, whole or not at all, one after the other: to a file, or where the coordinator has it."""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import typer

from agent.actions.fleet import FleetOrders, parse
from agent.actions.vetoes import ANY
from agent.balancer.coordinator import CoordinatorError
from agent.balancer.wiring import words_of
from agent.balancer.words import FileWords, Words
from agent.config import load
from agent.errors import ConfigError, KvtideError
from agent.plain import plain
from agent.policy.actions import LEVERS

Change = Callable[[FleetOrders, float], dict[str, Any]]

STANDARD_OUTPUT = Path("-")


def change(file: Path | None, config: Path | None, make: Change, told: str) -> None:
    """Change what the file says, or what agents with this configuration read from their coordinator, and tell it.

    Raises :class:`KvtideError`.
    """
    now = time.time()
    if config is None and file == STANDARD_OUTPUT:
        typer.echo(_changed("", make, now))
        return
    words = _words(file, config)

    async def write() -> None:
        try:
            await words.change(lambda text: _changed(text, make, now))
        finally:
            await words.close()

    try:
        asyncio.run(write())
    except CoordinatorError as error:
        raise KvtideError(str(error)) from None
    except ValueError as error:
        raise KvtideError(f"{words.place}: {plain(str(error), 200)}; remove it to begin anew") from None
    typer.echo(plain(told))


def _words(file: Path | None, config: Path | None) -> Words:
    if config is not None:
        words = words_of(load(config, {}).balancer)
        if words is None:
            raise ConfigError(f"{config}: balancer.coordinator: only file and kubernetes have a fleet's word")
        return words
    if file is None:
        raise ConfigError("where to: --file (or KVTIDE_FLEET_FILE), or --config of an agent with a coordinator")
    return FileWords(file.absolute().parent, file.name)


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


def _changed(text: str, make: Change, now: float) -> str:
    """Return what is written in the place of ``text``; raises ``ValueError`` where that can't be understood."""
    orders = parse(text)
    new = msgspec.structs.replace(orders, **make(orders, now))
    return msgspec.json.format(msgspec.json.encode(new), indent=2).decode() + "\n"
