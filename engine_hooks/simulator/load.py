"""Who asks for what, and when: arrivals, sessions with their turns, and clients that go away."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from engine_hooks.simulator.shapes import Form, MooncakeShapes, PoissonShapes, Shape, Shift
from engine_hooks.simulator.spec import TRACES, Spec
from engine_hooks.simulator.text import Texts
from engine_hooks.simulator.trace import TraceFile

DAY = 86_400.0
BURST_EVERY, BURST_SECONDS = 300.0, 20.0
MAX_SESSIONS = 2000  # between two turns
LARGEST_SHARE = 0.5  # of the pool that one request may take
SESSION_SHARE = 0.06  # of the pool that a session's context may have; then it begins anew
SKEW = 1.0  # of the tenants' shares: the n-th has 1/n of the first


@dataclass(slots=True)
class Arrival:
    """A request that comes at ``at`` (seconds since the beginning). ``leaves``: when its client goes away, None if it
    does not. ``urgent``: it has priority.
    """

    at: float
    key: str
    tenant: str
    shape: Shape
    urgent: bool
    leaves: float | None


@dataclass(slots=True)
class _Session:
    tenant: int
    name: str
    left: int


class Load:
    """The load of one run. ``shifts`` change it; ``extra`` requests may be added; times are since the beginning."""

    def __init__(self, spec: Spec, draw: random.Random) -> None:
        self._spec = spec
        self._draw = draw
        self._load = load = spec.load
        self.texts = Texts()
        shapes: type[PoissonShapes | MooncakeShapes] = MooncakeShapes if load.trace == "mooncake" else PoissonShapes
        self._shapes = shapes(load, draw, self.texts)
        self._file = None if load.trace in TRACES else TraceFile(Path(load.trace), load.scale)
        self.tenants = [f"t{number}" for number in range(1, load.tenants + 1)]
        self.shifts: list[Shift] = []
        self._weights: dict[tuple[int, ...], list[float]] = {}
        self._numbers = count()
        self._now = 0.0
        self._sessions: dict[str, _Session] = {}
        self._turns: list[tuple[float, int, _Session, list[int]]] = []
        self._leaving: list[tuple[float, str]] = []
        self.extra: list[Arrival] = []
        pool = spec.engine.blocks * spec.engine.block_size
        self._longest_session = max(int(pool * SESSION_SHARE), 4 * (self._load.system + self._load.prompt))
        self.largest = int(pool * LARGEST_SHARE)

    def due(self, now: float) -> list[Arrival]:
        """Return what has come since the last call."""
        begin, self._now = self._now, now
        active = [shift for shift in self.shifts if shift.since <= now < shift.until]
        came = self._extra(now)
        if self._file is not None:
            came += [self._arrival(now, self._pick(active), shape) for shape in self._file.until(now)]
        else:
            rate = self._rate(now, active)
            for _ in range(self._shapes.count(rate, begin, now)):
                came.append(self._new(now, active))
            came += self._next_turns(now)
        return came

    def share(self, tenant: str) -> float:
        """Return a tenant's share of the load, as it is without any shift."""
        return self._shares([])[self.tenants.index(tenant)]

    def leavers(self, now: float) -> list[str]:
        """Return the ids of requests whose clients have gone away since the last call."""
        gone = []
        while self._leaving and self._leaving[0][0] <= now:
            gone.append(heapq.heappop(self._leaving)[1])
        return gone

    def finished(self, request: Any) -> None:
        """A request has ended by itself: its session may go on."""
        session = self._sessions.pop(request.request_id, None)
        if session is None or session.left <= 0 or len(self._turns) >= MAX_SESSIONS:
            return
        idle = self._draw.expovariate(1.0 / self._load.idle_seconds)
        ttl = self._load.context_ttl
        history = [] if ttl and idle > ttl else list(request.all_token_ids)
        heapq.heappush(self._turns, (self._now + idle, next(self._numbers), session, history))

    def forget(self) -> None:
        """All requests are gone: the engine was restarted."""
        self._sessions.clear()
        self._leaving.clear()

    def add(self, at: float, shape: Shape, tenant: str, *, leaves: float | None = None) -> str:
        """Have one more request come; return its id."""
        key = f"x{next(self._numbers)}"
        self.extra.append(Arrival(at, key, tenant or self.tenants[0], shape, False, leaves))
        return key

    # -- what comes ----------------------------------------------------------------------------------------

    def _extra(self, now: float) -> list[Arrival]:
        came = [one for one in self.extra if one.at <= now]
        if came:
            self.extra = [one for one in self.extra if one.at > now]
            for one in came:
                if one.leaves is not None:
                    heapq.heappush(self._leaving, (one.leaves, one.key))
        return came

    def _rate(self, now: float, active: list[Shift]) -> float:
        """Requests (with sessions: new sessions) a second."""
        load = self._load
        rate = load.rate / load.turns
        if load.diurnal:
            rate *= 1.0 + load.diurnal * math.sin(2 * math.pi * (self._spec.start + now) / DAY)
        if load.ramp_seconds:
            rate *= min(1.0, now / load.ramp_seconds)
        if load.burst > 1 and now % BURST_EVERY < BURST_SECONDS:
            rate *= load.burst
        return rate * sum(self._shares(active)) + sum(shift.extra for shift in active)

    def _shares(self, active: list[Shift]) -> list[float]:
        """Each tenant's share of the load; more than 1 together where a shift adds some."""
        key = tuple(map(id, active))
        if key not in self._weights:
            plain = [1.0 / (1 + number) ** SKEW for number in range(len(self.tenants))]
            total = sum(plain)
            self._weights[key] = [
                weight / total * math.prod(shift.rate for shift in active if shift.concerns(tenant))
                for tenant, weight in zip(self.tenants, plain, strict=True)
            ]
        return self._weights[key]

    def _pick(self, active: list[Shift]) -> int:
        surging = [shift for shift in active if shift.extra]
        for shift in surging:
            if self._draw.random() * (sum(s.extra for s in surging) + self._load.rate) < shift.extra:
                return self.tenants.index(shift.tenant or self.tenants[0])
        if len(self.tenants) == 1:
            return 0
        return self._draw.choices(range(len(self.tenants)), self._shares(active))[0]

    def _new(self, now: float, active: list[Shift]) -> Arrival:
        tenant = self._pick(active)
        shape = self._shapes.make(tenant, self._form(tenant, active))
        arrival = self._arrival(now, tenant, shape)
        if self._load.turns > 1:
            turns = 1 + int(self._draw.expovariate(1.0 / max(1e-9, self._load.turns - 1)) + 0.5)
            shape.session = f"s{next(self._numbers)}"
            self._sessions[arrival.key] = _Session(tenant, shape.session, turns - 1)
        return arrival

    def _next_turns(self, now: float) -> list[Arrival]:
        came = []
        while self._turns and self._turns[0][0] <= now:
            _, _, session, history = heapq.heappop(self._turns)
            active = [shift for shift in self.shifts if shift.since <= now < shift.until]
            shape = self._shapes.make(session.tenant, self._form(session.tenant, active))
            if history and len(history) + len(shape.prompt) < self._longest_session:
                shape.prompt = history + shape.prompt[self._load.system :]
            shape.session = session.name
            session.left -= 1
            arrival = self._arrival(now, session.tenant, shape)
            self._sessions[arrival.key] = session
            came.append(arrival)
        return came

    def _form(self, tenant: int, active: list[Shift]) -> Form:
        return Form.of(self._load, [shift for shift in active if shift.concerns(self.tenants[tenant])])

    def _arrival(self, now: float, tenant: int, shape: Shape) -> Arrival:
        draw, engine = self._draw, self._spec.engine
        del shape.prompt[self.largest :]
        shape.output = max(1, min(shape.output, self.largest - len(shape.prompt) + 1))
        key = f"r{next(self._numbers)}"
        leaves = None
        if draw.random() < self._load.interrupts:
            life = shape.output / engine.step_output * engine.step_seconds
            leaves = now + draw.uniform(0.05, 0.95) * max(1.0, life)
            heapq.heappush(self._leaving, (leaves, key))
        return Arrival(now, key, self.tenants[tenant], shape, draw.random() < self._load.urgent, leaves)
