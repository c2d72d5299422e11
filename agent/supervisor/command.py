"""A command of one's own: run as it is, without a shell, with the engine in its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence

from agent.supervisor.base import RefusedError, Target
from agent.supervisor.program import run


class CommandSupervisor:
    """``argv`` gets KVTIDE_ENGINE, KVTIDE_INSTANCE, KVTIDE_HOST and KVTIDE_PID; exit status 0 is success."""

    name = "command"

    def __init__(self, argv: Sequence[str], seconds: float) -> None:
        self._argv, self._seconds = tuple(argv), seconds

    async def probe(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        if not os.access(self._argv[0], os.X_OK):
            raise RefusedError(f"{self._argv[0]}: is not there, or this user may not run it")

    async def restart(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        told = {
            "KVTIDE_ENGINE": target.engine,
            "KVTIDE_INSTANCE": target.instance,
            "KVTIDE_HOST": target.host,
            "KVTIDE_PID": str(target.pid),
        }
        await run(self._argv, self._seconds, told)

    async def succeeded(self, target: Target) -> bool:
        """It is seen on this node."""
        return False

    async def close(self) -> None:
        """There is nothing to end."""
