"""A unit of systemd's, by ``systemctl``. The agent's user needs the right to: root, or a rule of polkit's."""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

from agent.plain import plain
from agent.supervisor.base import RefusedError, SupervisorError, Target
from agent.supervisor.program import run

SHOWN = ("LoadState", "ActiveState", "ControlGroup")


class SystemdSupervisor:
    """``unit`` is restarted where the engine's own process is in it: never another's, never a successor's.

    ``systemctl``: the program and what it is always given; ``proc``: where processes are seen.
    """

    name = "systemd"

    def __init__(
        self, unit: str, seconds: float, systemctl: tuple[str, ...] = ("systemctl",), proc: Path = Path("/proc")
    ) -> None:
        self._unit, self._seconds, self._systemctl, self._proc = unit, seconds, systemctl, proc

    async def probe(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        if shutil.which(self._systemctl[0]) is None:
            raise RefusedError(f"{self._systemctl[0]} is not here")
        try:
            said = await run(
                [*self._systemctl, "show", f"--property={','.join(SHOWN)}", "--", self._unit], self._seconds
            )
        except SupervisorError as error:
            raise RefusedError(str(error)) from None
        found = dict(line.partition("=")[::2] for line in said.splitlines() if "=" in line)
        if found.get("LoadState") != "loaded" or found.get("ActiveState") != "active":
            state = f"{found.get('LoadState')}, {found.get('ActiveState')}"
            raise RefusedError(f"unit {self._unit} is not one that runs: {plain(state, 60)}")
        if not self._within(target, found.get("ControlGroup", "")):
            raise RefusedError(f"process {target.pid} of {target.engine} is not seen in unit {self._unit}")

    async def restart(self, target: Target) -> None:
        """See :class:`agent.supervisor.base.Supervisor`."""
        await self.probe(target)
        # Without waiting for its job: what it does is seen from outside, and a stop may take minutes.
        await run([*self._systemctl, "restart", "--no-block", "--", self._unit], self._seconds)

    async def succeeded(self, target: Target) -> bool:
        """It is seen on this node."""
        return False

    async def close(self) -> None:
        """There is nothing to end."""

    def _within(self, target: Target, group: str) -> bool:
        """Whether the process is in the unit's control group, or one below it."""
        if target.pid <= 0 or group in ("", "/"):
            return False
        try:
            text = (self._proc / str(target.pid) / "cgroup").read_text(encoding="ascii", errors="replace")
        except OSError:
            return False
        paths = (PurePosixPath(line.split(":", 2)[2]) for line in text.splitlines() if line.count(":") >= 2)
        return any(path.is_relative_to(group) for path in paths)
