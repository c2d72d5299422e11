"""What the host source must be told by the rest of the agent: whom to watch, who started when, who holds a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple


class Watched(NamedTuple):
    """A process of an engine. ``role``: core, worker, frontend, or what a source without hooks calls it.

    ``pid`` is as the agent sees it, 0 where it does not. Several may name one process: a worker inside its engine core.
    """

    engine: str
    role: str
    rank: int
    pid: int


class Start(NamedTuple):
    """An engine process that is there now. ``started_at``: Unix seconds, by the process's own word."""

    engine: str
    instance: str
    started_at: float


class Held(NamedTuple):
    """Device memory that the driver books on a process. ``pid`` is the host's."""

    pid: int
    used_bytes: int


Processes = Callable[[], tuple[Watched, ...]]
Starts = Callable[[], tuple[Start, ...]]
# By GPU label, with an entry for each GPU that was read; None: the device source has no value now.
DeviceHolders = Callable[[], Mapping[str, Sequence[Held]] | None]


def nobody() -> tuple[()]:
    """Return no process and no start: what an agent without engines has."""
    return ()


def no_devices() -> Mapping[str, Sequence[Held]] | None:
    """Return that nothing is known of GPUs."""
    return None
