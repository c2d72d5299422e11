"""From the agent's state to what the host source must be told."""

from __future__ import annotations

from collections.abc import Iterable

from agent.sources.device.state import DevicesState
from agent.sources.host.inputs import Held, Start, Watched
from agent.state import EngineState


def watched(engines: Iterable[EngineState]) -> tuple[Watched, ...]:
    """Return the processes of ``engines`` that the agent sees: cores, workers, API servers."""
    found = []
    for engine in engines:
        found.append(Watched(engine.engine, "core", engine.rank, engine.pid))
        found += [Watched(engine.engine, member.role, member.rank, member.pid) for member in engine.members]
    return tuple(row for row in found if row.pid > 0)


def starts(engines: Iterable[EngineState]) -> tuple[Start, ...]:
    """Return the starts of the engine processes that are there; one whose link ended is gone or going."""
    return tuple(Start(row.engine, row.instance, row.started_at) for row in engines if row.phase != "lost")


def device_holders(devices: DevicesState | None) -> dict[str, list[Held]] | None:
    """Return who holds memory of each GPU whose processes could be read; None without any reading."""
    if devices is None:
        return None
    return {
        gpu.gpu: [Held(row.pid, row.used_bytes) for row in gpu.processes.rows if row.used_bytes is not None]
        for gpu in devices.gpus
        if gpu.processes is not None
    }
