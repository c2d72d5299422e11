"""What all faults have in common: when they are on, how much they may take by now, and that they say so."""

from __future__ import annotations

import math
from typing import Any

from engine_hooks.simulator.core import SimulatedCore
from engine_hooks.simulator.spec import Fault, Truth
from engine_hooks.simulator.world import World

FOREVER = math.inf


class Plant:
    """One fault of a run. ``VERDICT``: what should be said about it; ``SCOPE``: about what.

    ``prepare`` is called for each engine before the hooks are there, ``ready`` once they are; ``tick`` after each step.
    """

    VERDICT = ""
    SCOPE = "engine"

    def __init__(self, world: World, fault: Fault, number: int) -> None:
        self.world = world
        self.fault = fault
        self.number = number
        self.began: float | None = None
        self._over = False

    @property
    def until(self) -> float:
        """When it ends, in seconds since the beginning."""
        return self.fault.onset + self.fault.seconds if self.fault.seconds else FOREVER

    def on(self) -> bool:
        """Whether it is on now."""
        return self.fault.onset <= self.world.now() < self.until

    def prepare(self, core: SimulatedCore) -> None:
        """Change an engine before the hooks see it."""

    def ready(self, core: SimulatedCore) -> None:
        """Change an engine after the hooks have wrapped it."""

    def tick(self) -> None:
        """Do what is due."""
        if self.began is not None and not self._over and self.world.now() >= self.until:
            self._over = True
            self.say("ended")

    def begin(self, *, tenant: str = "", note: str = "") -> None:
        """Say that it has begun, once."""
        if self.began is None:
            self.began = self.world.now()
            self.say("began", tenant=tenant, note=note)

    def say(self, what: str, *, blocks: int = 0, tenant: str = "", note: str = "") -> None:
        """Tell the truth about it."""
        self.world.tell(
            Truth(
                what=what,
                number=self.number,
                kind=self.fault.kind,
                onset=self.world.now() if self.began is None else self.began,
                verdict=self.VERDICT,
                scope=self.SCOPE,
                tenant=tenant or self.fault.tenant,
                blocks=blocks,
                note=note,
            )
        )


class Leak(Plant):
    """A fault that takes blocks: some a minute, or some at a time. ``taken``: so far, of all engines."""

    RATE = 12.0  # blocks a minute, where the spec does not say

    def __init__(self, world: World, fault: Fault, number: int) -> None:
        super().__init__(world, fault, number)
        self.taken = 0

    def due(self) -> int:
        """Return how many blocks it may take now."""
        if not self.on():
            return 0
        passed, fault = self.world.now() - self.fault.onset, self.fault
        if fault.blocks or self.steps[0]:
            blocks, every = (fault.blocks, fault.every) if fault.blocks else self.steps
            allowed = float(blocks * (1 + (int(passed / every) if every else 0)))
        else:
            allowed = (fault.rate or self.RATE) * passed / 60.0 + 1.0
        return max(0, int(allowed) - self.taken)

    @property
    def steps(self) -> tuple[int, float]:
        """Blocks at a time and seconds between two times, where the spec does not say; 0 for a steady leak."""
        return 0, 0.0

    def took(self, blocks: int, tenant: str = "") -> None:
        """Say that so many more blocks are gone."""
        if blocks:
            self.begin(tenant=tenant)
            self.taken += blocks
            self.say("planted", blocks=blocks, tenant=tenant)

    def concerns(self, request: Any) -> bool:
        """Whether it may take blocks of this request."""
        return not self.fault.tenant or tenant_of(request) == self.fault.tenant


def tenant_of(request: Any) -> str:
    """Return the tenant that a request was marked with."""
    marks = ((request.sampling_params.extra_args or {}) if request.sampling_params else {}).get("kvtide") or {}
    return str(marks.get("tenant", ""))


def tables_of(core: SimulatedCore) -> list[Any]:
    """Return the managers of block tables."""
    return list(core.scheduler.kv_cache_manager.coordinator.single_type_managers)
