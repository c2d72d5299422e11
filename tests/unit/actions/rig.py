"""Both ends of an order: a real LinkServer with actions behind it, a real AgentLink with a desk and tiny levers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from agent.actions.actions import Actions
from agent.actions.types import Action
from agent.config import LinkConfig
from agent.engines import EngineTable
from agent.link import LinkServer
from agent.policy.types import Policy
from agent.signals.types import NodeSignals
from agent.state import AgentState, EngineState, Judgement, MemberState, Verdict
from agent.subject import Subject
from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.guard import Guard
from engine_hooks.levers.base import Done, RefusedError, number
from engine_hooks.levers.desk import LeverDesk
from engine_hooks.levers.orders import ActionOrder, ActionResult, Arguments
from engine_hooks.link import AgentLink, LinkCallbacks
from tests.unit.builders import make_engine, make_frontend, make_hello, make_pool, make_state, make_verdict
from tests.unit.support import PATIENCE, Clock, eventually, eventually_async, settings_for

UNIX = 1_700_000_000.0


class Knob:
    """A lever that sets one number, and counts what is asked of it."""

    def __init__(self, name: str, argument: str, *, leased: bool = True) -> None:
        self.NAME = name
        self.value: float = 0
        self.calls: Counter[str] = Counter()
        self.fails: Exception | None = None
        self._argument = argument
        self._leased = leased

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        self.calls["would"] += 1
        if self.fails is not None:
            raise self.fails
        return {"before": self.value, "after": self._wanted(arguments)}

    def apply(self, arguments: Arguments) -> Done:
        self.calls["apply"] += 1
        if self.fails is not None:
            raise self.fails
        before, self.value = self.value, self._wanted(arguments)

        def undo() -> dict[str, int | float]:
            self.calls["undo"] += 1
            self.value = 0
            return {"after": 0}

        return Done({"before": before, "after": self.value}, undo if self._leased else None)

    def _wanted(self, arguments: Arguments) -> float:
        return number(arguments, self._argument, 0, 1e9, 1) if self._argument else 1


class Rules(Knob):
    """A lever that keeps its arguments, as admission does. ``refuses``: names of some that it does not take."""

    refuses: tuple[str, ...] = ()

    def _wanted(self, arguments: Arguments) -> float:
        if any(name in arguments for name in ("refuse_this", *self.refuses)):
            raise RefusedError("bad_argument", "no")
        return len(arguments)


def knobs() -> dict[str, Knob]:
    """The levers of a made-up engine."""
    return {
        "watermark": Knob("watermark", "blocks"),
        "active_cap": Knob("active_cap", "requests"),
        "reclaim_orphans": Knob("reclaim_orphans", "", leased=False),
        "preempt": Knob("preempt", "requests"),
    }


class Process:
    """A process with a desk at the other end of a real link; its side thread plays the engine's thread."""

    def __init__(
        self,
        socket: Path,
        key: Path,
        clock: Callable[[], float],
        *,
        instance: str = "i1",
        levers: dict[str, Any] | None = None,
        allowed: tuple[str, ...] | None = None,
        role: str = "core",
    ) -> None:
        self.instance, self.role = instance, role
        self.levers: dict[str, Any] = knobs() if levers is None else levers
        self.desk = LeverDesk(
            instance,
            self.levers,
            unsupported={},
            allowed=tuple(self.levers) if allowed is None else allowed,
            guard=Guard(),
            clock=clock,
        )
        self.orders: list[ActionOrder] = []
        self.silent = False
        callbacks = LinkCallbacks(self._hello, self._order, self._tick, lambda: None)
        self.link = AgentLink(settings_for(socket, key), callbacks)

    def _hello(self, session: Session) -> wire.Hello:
        return make_hello(
            instance=self.instance,
            role=self.role,
            mac=session.engine_proof(),
            levers=self.desk.rows(),
            in_force=self.desk.in_force(),
        )

    def _order(self, order: wire.Order) -> None:
        if order.action is None:
            return
        self.orders.append(order.action)
        if not self.silent:
            self.link.send(self.desk.execute(order.action, 0.0))

    def _tick(self) -> None:
        for result in self.desk.tick():
            self.link.send(result)

    def close(self) -> None:
        self.link.close()
        eventually(lambda: not self.link._thread.is_alive())


def policy(**actions: Any) -> Policy:
    """All levers in earnest, at once, unless it says otherwise."""
    values: dict[str, Any] = {"mode": "enforce", "breaches": 1, "answer_seconds": 5.0}
    return Policy.model_validate({"actions": values | actions})


def short(**changes: Any) -> Verdict:
    """A pool that is short, for which somebody is woken."""
    values: dict[str, Any] = {
        "kind": "kv_pressure",
        "sentence": "The KV pool is short.",
        "evidence": {"use_ratio": 0.97},
        "subject": Subject(scope="engine", engine="m"),
        "tier": "warn",
    }
    return make_verdict(**values | changes)


class Rig:
    """An agent's acting half on a fake clock, with any number of processes."""

    def __init__(self, folder: Path, key: Path, chosen: Policy | None = None) -> None:
        self.folder, self.key = folder, key
        self.socket = folder / "s"
        self.policy = chosen or policy()
        self.clock, self.unix = Clock(50_000.0), UNIX
        self.processes: list[Process] = []
        self.held = 970
        self._node, self._engine = make_state(), make_engine()
        self.signals = NodeSignals()
        self._begin()

    def _begin(self) -> None:
        self.table = EngineTable(3.0)
        self.server = LinkServer(LinkConfig(socket=self.socket, key_file=self.key), self.table, heard=self.heard)
        self.actions = Actions(
            self.folder / "state",
            self.policy,
            self.send,
            clock=self.clock,
            wall=lambda: self.unix + self.clock.now - 50_000.0,
            minute=lambda _unix: 720,
        )
        self.sent: list[ActionOrder] = []

    def heard(self, instance: str, result: ActionResult) -> None:
        self.actions.heard(instance, result)

    def send(self, order: ActionOrder) -> bool:
        self.sent.append(order)
        return self.server.act(order)

    async def start(self) -> Rig:
        self.server.start()
        self.actions.start()
        await eventually_async(self.actions.tasks.idle)
        self.say_nothing()
        return self

    def say_nothing(self) -> None:
        """Let the off switches be read at the fake time."""
        self.actions.outside.close()
        self.actions.outside.said = _always(self)  # type: ignore[method-assign]

    async def restart(self) -> None:
        """Another agent in the place of this one, as after an upgrade."""
        await self.actions.close()
        self.server.close()
        self._begin()
        await self.start()
        await self.connected()

    async def add(self, **changes: Any) -> Process:
        process = Process(self.socket, self.key, self.clock, **changes)
        self.processes.append(process)
        process.link.start()
        await self.connected()
        return process

    async def connected(self) -> None:
        await eventually_async(
            lambda: self.server.state().connections == sum(p.link.up for p in self.processes) == len(self.processes)
        )

    def engine(self, **changes: Any) -> EngineState:
        cores = [process for process in self.processes if process.role == "core"]
        values: dict[str, Any] = {
            "pool": make_pool(held=self.held, cached_idle=0, empty=1000 - self.held, orphaned=0),
            "members": tuple(self.member(process) for process in self.processes if process.role == "frontend"),
            "running": 100,
            "verdicts": (),
        }
        if cores:
            values |= {
                "instance": cores[0].instance,
                "levers": cores[0].desk.rows(),
                "in_force": cores[0].desk.in_force(),
            }
        return replace(self._engine, **values | changes)

    @staticmethod
    def member(process: Process) -> MemberState:
        return make_frontend(
            instance=process.instance, levers=process.desk.rows(), in_force=process.desk.in_force(), up=True
        )

    def state(self, *verdicts: Verdict, **engine: Any) -> AgentState:
        now = self.clock.now
        judgement = Judgement(at=self.unix, signals=self.signals, verdicts=verdicts)
        return replace(
            self._node,
            engines=(self.engine(**engine),),
            at=self.unix + now - 50_000.0,
            monotonic=now,
            judgement=judgement,
            waterfalls=(),
        )

    async def look(self, *verdicts: Verdict, **engine: Any) -> None:
        """One look at the node, and what is begun there to its end."""
        self.actions.tick()
        self.actions.take(self.state(*verdicts, **engine))
        await eventually_async(self.actions.tasks.idle)
        written = threading.Event()
        self.actions.journal._work.put(written.set)
        await asyncio.to_thread(written.wait, PATIENCE)

    async def seconds(self, number: float, *verdicts: Verdict, step: float = 1.0, **engine: Any) -> None:
        """Let so much time pass, with a look each second."""
        end = self.clock.now + number
        while self.clock.now < end:
            self.clock.now += step
            await self.look(*verdicts, **engine)

    @property
    def done(self) -> list[Action]:
        """All actions, oldest first."""
        return list(self.actions.book.recent())

    def refusals(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for each in self.actions.state().refused:
            found[each.code] += each.count
        return dict(found)

    async def close(self) -> None:
        for process in self.processes:
            process.close()
        await self.actions.close()
        self.server.close()


def _always(rig: Rig) -> Callable[[float], Any]:
    from agent.actions.outside import read

    return lambda now: read(rig.policy, rig.folder / "state", now, rig.unix)
