"""A member's link: a worker or an API server that says once a second that it lives and what it holds.

All of it runs on the link's side thread, but for :meth:`MemberLink.speak`. Nothing here is on the way of a step or of a
request.
"""

from __future__ import annotations

import functools
import logging
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from engine_hooks import wire
from engine_hooks.allocator import AllocatorRow, HistoryRow, MemoryEvent
from engine_hooks.auth import Session
from engine_hooks.guard import Guard, told
from engine_hooks.identity import Identity
from engine_hooks.levers.desk import LeverDesk
from engine_hooks.link import STARTING, AgentLink, LinkCallbacks
from engine_hooks.members import FrontendRow, MemberReport, WorkerRow
from engine_hooks.own_memory import OwnMemory, resident_bytes
from engine_hooks.settings import Settings
from engine_hooks.wire_types import MAX_HOOKS

if TYPE_CHECKING:
    from engine_hooks.torch.probe import Probe  # which uses this module

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

PERIOD_SECONDS = 1.0
_SLACK = 0.1  # the link ticks every quarter of a second
_MARK = "__kvtide_member__"

Read = Callable[[], WorkerRow | FrontendRow | None]


class MemberLink:
    """Tells the agent about ``owner``, whose end ends the link. ``read`` returns its row now, None while it has none.

    ``read`` must not hold ``owner``; it runs on the side thread. ``probe``: the allocator of a
    process that uses a device; of several members of one process, one tells of it. ``desk``: its levers, which are
    pulled on the side thread. ``guards``: of this process's hooks; what they have caught is told.
    """

    def __init__(
        self,
        owner: Any,
        identity: Identity,
        settings: Settings,
        read: Read,
        probe: Probe | None = None,
        *,
        desk: LeverDesk | None = None,
        guards: tuple[Guard, ...] = (),
    ) -> None:
        self.read = read
        self._identity = identity
        self._probe = probe
        self._desk = desk
        self._fresh = True  # the agent has not heard of what happened before it came
        self._last: MemberReport | None = None
        self._own = OwnMemory()
        self._guard = Guard()
        self._guards = (self._guard, *guards)
        self._next = 0.0
        self._link = AgentLink(settings, LinkCallbacks(self._hello, self._order, self._tick, self._connected))
        weakref.finalize(owner, self.close).atexit = False

    def start(self) -> None:
        """Start the side thread."""
        if self._probe is not None:
            self._probe.claim(self)
        self._link.start()

    def renew(self, read: Read) -> None:
        """Report by ``read`` from now on, and soon."""
        self.read = read
        self._next = 0.0

    def close(self) -> None:
        """Say nothing more; returns at once."""
        if self._probe is not None:
            if self._probe.unsent and self._probe.claim(self):
                self.speak()
            self._probe.release(self)
        self._link.close()

    def connecting(self) -> bool:
        """Return whether the first attempt to find the agent is still under way."""
        return self._link.state == STARTING

    def speak(self) -> bool:
        """Send what has just failed: at once, without waiting, from the thread that it failed on. Whether there is a
        link.
        """
        probe = self._probe
        if probe is None or not self._link.up:
            return False
        last = self._last or MemberReport(monotonic=0.0, resident_bytes=None)
        # The process may have no second left: what was read last goes along, for a report stands for all.
        changes = {"monotonic": time.monotonic(), "events": probe.events.recent(), "history": None, "memory": None}
        self._link.send(msgspec.structs.replace(last, **changes))
        return True

    # -- the link's side thread ---------------------------------------------------------------------------

    def _hello(self, session: Session) -> wire.Hello:
        audit = wire.Support(ok=False, reason="not an engine core")
        levers, in_force = (self._desk.rows(), self._desk.in_force()) if self._desk is not None else ((), ())
        return self._identity.hello(session, None, audit, PERIOD_SECONDS, levers=levers, in_force=in_force)

    def _order(self, order: wire.Order) -> None:
        if order.kind == wire.LEVER and order.action is not None and self._desk is not None:
            self._link.send(self._desk.execute(order.action, 0.0))
            self._next = 0.0  # what is in force has changed
            return
        detail = self._guard.run("order", self._refusal, order)
        detail = "the hook that takes orders failed" if detail is None else detail
        self._link.send(wire.OrderResult(sequence=order.sequence, ok=not detail, detail=detail))

    def _refusal(self, order: wire.Order) -> str:
        """Do what ``order`` says; return why not, or an empty string."""
        probe = self._probe
        if order.kind != wire.HISTORY or probe is None:
            return f"a {self._identity.role} takes no orders" if probe is None else f"no such order: {order.kind[:32]}"
        if not probe.claim(self):
            return "another member of this process tells of its allocator"
        return probe.record(order.seconds, time.monotonic())

    def _connected(self) -> None:
        self._next = 0.0
        self._own.again()
        self._fresh = True

    def _tick(self) -> MemberReport | None:
        now = time.monotonic()
        if self._desk is not None:
            for result in self._desk.tick():
                self._link.send(result)
        if self._probe is not None and self._probe.claim(self):
            self._guard.run("history", self._probe.tick, now)  # an agent that has gone must not leave a recording on
        if now < self._next or not self._link.up:
            return None
        self._next = now + PERIOD_SECONDS - _SLACK
        return self._guard.run("report", self._report, now)

    def _report(self, now: float) -> MemberReport:
        row = self._guard.run("member", self.read)  # where it keeps failing, that is told, and all else
        allocator, events, history = self._probed(now)
        errors, off = told(self._guards, MAX_HOOKS)
        report = MemberReport(
            monotonic=now,
            resident_bytes=resident_bytes(),
            worker=row if isinstance(row, WorkerRow) else None,
            frontend=row if isinstance(row, FrontendRow) else None,
            allocator=allocator,
            events=events,
            history=history,
            in_force=self._desk.in_force() if self._desk is not None else (),
            errors=errors,
            off=off,
            memory=self._guard.run("memory", self._own.fresh, now),
        )
        self._last = report
        return report

    def _probed(self, now: float) -> tuple[AllocatorRow | None, tuple[MemoryEvent, ...], HistoryRow | None]:
        probe = self._probe
        if probe is None:
            return None, (), None
        if not probe.claim(self):
            return AllocatorRow(reason="another member of this process tells of it"), (), None
        allocator = self._guard.run("allocator", probe.row, now)
        fresh, self._fresh = self._fresh, False
        walked = allocator is not None and allocator.walk is not None
        return allocator, *probe.news(everything=fresh, again=walked)


def call_after(owner: type, name: str, then: Callable[..., None]) -> None:
    """Have ``owner.name`` call ``then`` with its own arguments once it has returned. Once; nothing of ours gets out."""
    original = vars(owner)[name]
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        try:
            then(*args, **kwargs)
        except Exception:
            logger.exception("kvtide: after %s: this process goes on without us", name)
        return result

    setattr(wrapper, _MARK, True)
    setattr(owner, name, wrapper)


def attach(owner: Any, member: MemberLink) -> None:
    """Keep ``member`` with its owner and start it."""
    setattr(owner, _MARK, member)
    member.start()


def member_of(owner: Any) -> MemberLink | None:
    """The member that was attached to ``owner``."""
    member: MemberLink | None = vars(owner).get(_MARK) if owner is not None else None
    return member


def detach(owner: Any) -> None:
    """Close the link of ``owner``, if it has one."""
    member = member_of(owner)
    if member is not None:
        member.close()
