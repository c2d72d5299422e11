"""Loads that harm: they take no block for good, but the engine can't do its work."""

from __future__ import annotations

from typing import Any

from engine_hooks.simulator.core import SimulatedCore
from engine_hooks.simulator.faults.base import Plant
from engine_hooks.simulator.shapes import Shift
from engine_hooks.simulator.spec import Fault
from engine_hooks.simulator.world import World

OVERSUBSCRIBED = 2.5  # what a load that makes an engine thrash would hold, against the pool


class LoadChanges(Plant):
    """From the onset on the load is another."""

    def __init__(self, world: World, fault: Fault, number: int) -> None:
        super().__init__(world, fault, number)
        self.shift = self.shifted()
        world.load.shifts.append(self.shift)

    def shifted(self) -> Shift:
        """Return how the load changes."""
        raise NotImplementedError

    def tick(self) -> None:
        """See :class:`Plant`."""
        super().tick()
        if self.on():
            self.begin(tenant=self.shift.tenant)

    @property
    def pool(self) -> int:
        """Tokens that the pool has room for."""
        engine = self.world.spec.engine
        return engine.blocks * engine.block_size

    def life(self, output: float) -> float:
        """Seconds that a request of ``output`` times the load's tokens runs, as far as it need not wait."""
        engine, load = self.world.spec.engine, self.world.spec.load
        return load.output * output / engine.step_output * engine.step_seconds

    def named(self) -> str:
        """The tenant that it is about: the last one, where the spec does not say."""
        return self.fault.tenant or self.world.load.tenants[-1]


class PreemptionThrash(LoadChanges):
    """More and longer requests than the pool can hold: they are put back again and again, and computed anew."""

    VERDICT = "preemption_thrash"

    def shifted(self) -> Shift:
        """As many and as long as it takes to have more of them admitted than can stay."""
        load = self.world.spec.load
        long = OVERSUBSCRIBED * self.pool / self.world.spec.engine.running  # tokens of each, at its end
        output = max(2.0, (long - load.prompt - load.system) / load.output)
        held = load.rate * self.life(output) * (load.prompt + load.system + load.output * output / 2)
        rate = max(0.5, (self.fault.factor or 1.0) * OVERSUBSCRIBED * self.pool / held)
        return Shift(self.fault.onset, self.until, output=output, rate=rate)


class TenantSurge(LoadChanges):
    """One tenant sends many times as much as before, and more than the pool can hold: the others wait for it."""

    VERDICT = "tenant_surge"
    SCOPE = "tenant"
    WANTS = 1.3  # of the pool

    def shifted(self) -> Shift:
        """Prompts so long that as many as may run fill the pool, and so many of them; the spec's factor on top."""
        load, named = self.world.spec.load, self.named()
        prompt = max(1.0, (self.WANTS * self.pool / self.world.spec.engine.running - load.system) / load.prompt)
        held = load.rate * self.world.load.share(named) * self.life(1.0) * (
            load.system + load.prompt * prompt + load.output / 2
        )  # fmt: skip
        rate = (self.fault.factor or 1.0) * max(5.0, self.WANTS * self.pool / held)
        return Shift(self.fault.onset, self.until, tenant=named, rate=rate, prompt=prompt)


class EvictionStorm(LoadChanges):
    """One tenant's prompts, long and all different, push out what the others would have used again."""

    VERDICT = "eviction_storm"
    TOKENS, POOL_SECONDS = 2000, 40.0

    def shifted(self) -> Shift:
        """As many as it takes to fill the pool every forty seconds."""
        load = self.world.spec.load
        rate = self.pool / self.POOL_SECONDS / self.TOKENS * (self.fault.factor or 1.0)
        return Shift(
            self.fault.onset, self.until, tenant=self.named(), extra=rate, prompt=self.TOKENS / load.prompt,
            output=0.1, alone=True,
        )  # fmt: skip


class ContextShift(LoadChanges):
    """Prompts become five times as long."""

    VERDICT = "workload_shift"

    def shifted(self) -> Shift:
        """Prompts times five, or the spec's factor."""
        return Shift(self.fault.onset, self.until, tenant=self.fault.tenant, prompt=self.fault.factor or 5.0)


class LongTail(LoadChanges):
    """The share of very long prompts goes from 5 to 35 %."""

    VERDICT = "workload_shift"

    def shifted(self) -> Shift:
        """The new share: 0.35, or the spec's factor."""
        return Shift(self.fault.onset, self.until, tenant=self.fault.tenant, long_tail=self.fault.factor or 0.35)


class Stall(Plant):
    """The scheduler's own books say that there is no room although the pool is empty: nothing is admitted any more."""

    VERDICT = "kv_stall"

    def prepare(self, core: SimulatedCore) -> None:
        """See :class:`Plant`."""
        manager = core.scheduler.kv_cache_manager
        allocate = manager.allocate_slots

        def allocate_slots(request: Any, *args: Any, **kwargs: Any) -> Any:
            if self.on() and request.status.name != "RUNNING":
                return None
            return allocate(request, *args, **kwargs)

        manager.allocate_slots = allocate_slots

    def tick(self) -> None:
        """It has begun once work is there and none of it is done."""
        super().tick()
        core = self.world.core
        if self.on() and core is not None and not core.tokens and core.scheduler.waiting:
            self.begin()
