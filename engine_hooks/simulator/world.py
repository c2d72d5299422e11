"""What faults and events get to work with."""

from __future__ import annotations

import random
from collections.abc import Callable

from engine_hooks.simulator.clock import MONOTONIC_START, VirtualClock
from engine_hooks.simulator.core import SimulatedCore
from engine_hooks.simulator.load import Load
from engine_hooks.simulator.spec import Spec, Truth
from engine_hooks.simulator.transfers import Transfers


class World:
    """One run. ``core`` and ``transfers``: of the engine that is up, None while none is. ``down_until``: it comes back
    then. ``tell`` says what really happens.
    """

    def __init__(
        self, spec: Spec, clock: VirtualClock, load: Load, draw: random.Random, tell: Callable[[Truth], None]
    ) -> None:
        self.spec = spec
        self.clock = clock
        self.load = load
        self.draw = draw
        self.tell = tell
        self.core: SimulatedCore | None = None
        self.transfers: Transfers | None = None
        self.down_until = 0.0
        self.restart: Callable[[float], None] = lambda _seconds: None

    def now(self) -> float:
        """Return seconds since the beginning."""
        return self.clock.now - MONOTONIC_START
