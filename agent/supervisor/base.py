"""What a supervisor is: it can restart one engine, and says beforehand whether it can."""

from __future__ import annotations

from typing import Protocol

from agent.subject import Value


class SupervisorError(Exception):
    """It could not be done; the text says why. Whether it was begun is not known."""


class RefusedError(SupervisorError):
    """The supervisor will not do it now; nothing has been begun."""


class Target(Value, frozen=True, kw_only=True):
    """The engine's life that is meant, and no other. ``pid``: as the agent sees it, 0 where it does not; ``host``: the
    engine's host name, in Kubernetes its pod's.
    """

    engine: str
    instance: str
    host: str
    pid: int
    started_at: float


class Supervisor(Protocol):
    """One engine's. ``name``: the plug-in's. Calls end by themselves, see each."""

    name: str

    async def probe(self, target: Target) -> None:
        """Return where ``target`` could be restarted now; raises :class:`RefusedError` with the reason where not."""

    async def restart(self, target: Target) -> None:
        """Have ``target`` restarted, never a successor of it; returns when that is begun. Raises
        :class:`SupervisorError`.
        """

    async def succeeded(self, target: Target) -> bool:
        """Return whether the supervisor itself sees a successor that serves: it may come up on another node. False
        where the supervisor can't tell; raises :class:`SupervisorError`.
        """

    async def close(self) -> None:
        """End connections."""
