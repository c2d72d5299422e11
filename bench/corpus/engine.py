"""A made-up engine with hooks: requests come, take blocks, wait, are preempted and end; what it reports is consistent.

It stands in where a real scheduler would be too slow (days) or can't be made to fail; ``simulated.py`` has real ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from agent.state import MemberState
from bench.corpus.clock import Tick
from bench.corpus.counts import Counts
from bench.corpus.load import poisson
from bench.corpus.requests import BLOCK_TOKENS, Request, Tenant
from engine_hooks.core.buckets import PROMPT_TOKENS
from engine_hooks.detail import (
    DelayedRow,
    LeakRow,
    PinRow,
)

_TAKE_BOUNDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
_WAIT_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)
_LIFE_BOUNDS = (1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0)
_LIVED_SECONDS = 4.0
_TOTALS = ("taken", "given", "prefilled", "scheduled", "rebuilt_preempted", "rebuilt_evicted", "rebuild_seconds")
_OF_TENANTS = ("requests", "prompt_tokens", "generated")
_SESSION_BOUNDS = (10.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 7_200.0)


@dataclass(slots=True)
class Speed:
    """Tokens a second: ``prefill`` in all, ``decode`` of one request alone; ``batch``: how many more halve that."""

    prefill: float = 12_000.0
    decode: float = 60.0
    batch: float = 120.0


class Engine:
    """One engine. What goes wrong with it is set from outside: ``orphans``, ``delayed``, ``pins``, ``stalled_by``."""

    def __init__(
        self,
        rng: Random,
        tenants: Sequence[Tenant],
        *,
        name: str = "m",
        capacity: int = 20_000,
        most_running: int = 256,
        speed: Speed | None = None,
        block_bytes: int = 2 << 20,
        speculative: bool = False,
    ) -> None:
        self.rng = Random(rng.getrandbits(64))
        self.name, self.tenants, self.capacity = name, list(tenants), capacity
        self.most_running, self.speed, self.block_bytes = most_running, speed or Speed(), block_bytes
        self.instance = f"{self.rng.getrandbits(48):x}"
        self.members: tuple[MemberState, ...] = ()
        self.pid = self.rng.randrange(2_000, 60_000)
        self.speculative = speculative
        self.extra_refusals = 0.0  # a second, that memory refuses for a reason of its own
        # What all requests will hold in the end, as a share of the pool, at which a router sends the next elsewhere.
        self.most_held = math.inf
        self.longest_tokens: int | None = None  # what one request may have
        self.patience: float | None = None  # seconds after which a client gives up and tries again
        self._begin()

    def _begin(self) -> None:
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.cached = 0
        self.orphans: list[tuple[LeakRow, float]] = []  # with the moment at which they were lost
        self.over_freed = 0
        self.delayed: tuple[DelayedRow, ...] | None = None
        self.pins: tuple[PinRow, ...] | None = None
        self.stalled_by = ""
        self.paused = False
        self.frozen = False
        self.unfit = 0  # requests at the head that never fit
        self.stalled = 0.0
        self.steps = self.refused = self.preempted = self.taken = self.given = 0
        self.consecutive = self.most_consecutive = self.over_three = 0
        self.prefilled = self.scheduled = self.rebuilt_preempted = self.rebuilt_evicted = 0.0
        self.rebuild_seconds = 0.0
        self.started_at = 0.0
        self.sequence = 0
        self.residue = self.interruptions = self.stuck = 0
        self.rounds = 0
        self.takes, self.waits, self.lives = Counts(_TAKE_BOUNDS), Counts(_WAIT_BOUNDS), Counts(_LIFE_BOUNDS)
        self.prompts = Counts(PROMPT_TOKENS)
        self.sessions = {tenant.name: Counts(_SESSION_BOUNDS) for tenant in self.tenants}
        self.session_seconds = 45.0
        self.evicted_share = 0.0  # of what is prefilled, computed again because others evicted it

    def restart(self, at: float) -> None:
        """Begin anew as another instance, at ``at`` (Unix seconds)."""
        self._begin()
        self.instance = f"{self.rng.getrandbits(48):x}"
        self.pid += 17
        self.started_at = at
        for tenant in self.tenants:
            tenant.requests = tenant.prompt_tokens = tenant.preempted = 0
            tenant.generated, tenant.ended = 0.0, {}

    @property
    def used(self) -> int:
        """Blocks of running requests."""
        return sum(request.blocks for request in self.running)

    @property
    def kept(self) -> int:
        """Blocks that no running request has and that are not free."""
        late = sum(row.blocks for row in self.delayed or ())
        return sum(row.blocks for row, _ in self.orphans) + late + sum(row.references for row in self.pins or ())

    def abort_all(self) -> int:
        """End everything that runs or waits, as when the front end goes away; return how many."""
        number = len(self.running) + len(self.waiting)
        while self.running:
            self.drop(0)
        for request in self.waiting:
            self._end(request, "aborted_front_end")
        self.waiting.clear()
        return number

    def drop(self, number: int) -> None:
        """Let the client of the running request ``number`` go away; its blocks come back."""
        request = self.running.pop(number)
        self._free(request)
        self._end(request, "aborted_front_end")

    def put_back(self) -> None:
        """Preempt the newest running request."""
        victim = self.running.pop()
        self._free(victim)
        victim.computed = victim.done
        victim.reach(0.0)
        victim.tenant.preempted += 1
        self.preempted += 1
        self.interruptions += self.speculative
        self.waiting.appendleft(victim)

    def step(self, tick: Tick) -> None:
        """Let ``tick.elapsed`` seconds pass."""
        if self.frozen:
            return
        # Of a long step only the end is lived through, and counted as often as it fits into the whole.
        elapsed = min(tick.elapsed, _LIVED_SECONDS)
        before = self._totals() if tick.elapsed > 1.5 * elapsed else None
        self._live(tick, elapsed)
        if before is not None:
            self._stretch(before, min(tick.elapsed, 120.0) / elapsed - 1)

    def _live(self, tick: Tick, elapsed: float) -> None:
        room = math.inf
        if self.most_held < math.inf:
            room = self.most_held * self.capacity - sum(each.whole for each in (*self.running, *self.waiting))
        for tenant in self.tenants:
            for _ in range(poisson(self.rng, tenant.rate(tick.t) * elapsed)):
                request = tenant.draw(self.rng)
                room -= request.whole
                if room < 0:
                    continue
                request.patience = self.patience
                tenant.requests += 1
                self.waiting.append(request)
        while len(self.waiting) > 2_000:
            self._end(self.waiting.popleft(), "error")
        if self.stalled_by or self.paused:
            busy = self.running or self.waiting or self.unfit
            self.stalled = self.stalled + elapsed if busy and not self.paused else 0.0
            return
        self.stalled = 0.0
        slices = 2 if elapsed > 2 else 1
        for _ in range(slices):
            # In this order what is freed is taken again at once where somebody waits for it, as in steps of 30 ms.
            self._advance(elapsed / slices)
            self._admit(elapsed / slices)
        if self.extra_refusals:
            self._refuse(poisson(self.rng, self.extra_refusals * elapsed))
        for request in self.waiting:
            request.waited += elapsed
        self.steps += max(1, int(elapsed * 25))

    def _totals(self) -> list[float]:
        own = [getattr(self, name) for name in _TOTALS]
        return own + [getattr(tenant, name) for tenant in self.tenants for name in _OF_TENANTS]

    def _stretch(self, before: list[float], times: float) -> None:
        for (owner, name), was, now in zip(self._places(), before, self._totals(), strict=True):
            more = (now - was) * times
            setattr(owner, name, now + (int(more) if isinstance(now, int) else more))

    def _places(self) -> list[tuple[object, str]]:
        return [(self, name) for name in _TOTALS] + [(tenant, name) for tenant in self.tenants for name in _OF_TENANTS]

    def _refuse(self, number: int) -> None:
        self.refused += number
        self.consecutive += number
        self.most_consecutive = max(self.most_consecutive, self.consecutive)

    def _admit(self, elapsed: float) -> None:
        if self.patience is not None:
            for request in [each for each in self.waiting if each.waited > self.patience]:
                self.waiting.remove(request)
                self._end(request, "aborted_front_end")
        free = self.capacity - self.used - self.kept
        budget = self.speed.prefill * elapsed
        while self.waiting and len(self.running) < self.most_running and budget > 0:
            request = self.waiting[0]
            tokens = max(float(request.prompt), request.computed)
            need = -(-int(tokens) // BLOCK_TOKENS) + 1
            if need > free - self.capacity // 100:
                request.refused += 1
                if request.refused == 4:
                    self.over_three += 1
                self._refuse(1)
                break
            self.waiting.popleft()
            self.consecutive = 0
            again = request.computed
            self.rebuilt_preempted += again
            fresh = request.prompt * (1 - request.tenant.reuse)
            lost = self.evicted_share * request.prompt
            self.rebuilt_evicted += lost
            self.prefilled += fresh + lost
            self.scheduled += fresh + lost + again
            self.rebuild_seconds += (again + lost) / self.speed.prefill
            if not request.computed:
                request.tenant.prompt_tokens += request.prompt
                self.prompts.add(request.prompt)
            request.reach(tokens)
            free -= need
            budget -= fresh + lost + again
            self.taken += need
            self.takes.add(4e-6, 1)
            if request.refused:
                self.waits.add(request.waited)
            request.refused = 0
            self.running.append(request)

    def _advance(self, elapsed: float) -> None:
        each = self.speed.decode * elapsed / (1 + len(self.running) / self.speed.batch)
        going: list[Request] = []
        used = self.kept
        for request in self.running:
            whole = request.prompt + request.output
            got = min(each, whole - request.done)
            self.taken += request.reach(request.done + got)
            request.ran += elapsed
            request.tenant.generated += got
            self.scheduled += got
            if request.done < whole:
                going.append(request)
                used += request.blocks
                continue
            self._free(request)
            self.lives.add(request.ran)
            self.sessions[request.tenant.name].add(self.session_seconds * self.rng.lognormvariate(0, 0.6))
            self._end(request, "finished")
        self.running = going
        if self.speculative and going:
            self.rounds += int(len(going) * elapsed * 10)
        while going and used > self.capacity:
            used -= going[-1].blocks
            self.put_back()

    def _free(self, request: Request) -> None:
        self.given += request.blocks
        self.cached = min(self.capacity, self.cached + request.blocks)

    def _end(self, request: Request, ending: str) -> None:
        ended = request.tenant.ended
        ended[ending] = ended.get(ending, 0) + 1
