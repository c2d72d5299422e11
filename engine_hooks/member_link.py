"""A member's link: a worker or an API server that says once a second that it lives and what it holds.

All of it runs on the link's side thread. Nothing here is on the way of a step or of a request.
"""

from __future__ import annotations

import functools
import logging
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine_hooks import wire
from engine_hooks.auth import Session
from engine_hooks.guard import Guard
from engine_hooks.identity import Identity
from engine_hooks.link import AgentLink, LinkCallbacks
from engine_hooks.members import FrontendRow, MemberReport, WorkerRow
from engine_hooks.settings import Settings

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines

PERIOD_SECONDS = 1.0
_SLACK = 0.1  # the link ticks every quarter of a second
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_MARK = "__kvtide_member__"

Read = Callable[[], WorkerRow | FrontendRow]


class MemberLink:
    """Tells the agent about ``owner``, whose end ends the link. ``read`` returns its row now.

    ``read`` must not hold ``owner``; it runs on the side thread, and may be replaced.
    """

    def __init__(self, owner: Any, identity: Identity, settings: Settings, read: Read) -> None:
        self.read = read
        self._identity = identity
        self._guard = Guard()
        self._next = 0.0
        self._link = AgentLink(settings, LinkCallbacks(self._hello, self._order, self._tick, self._connected))
        weakref.finalize(owner, self.close).atexit = False

    def start(self) -> None:
        """Start the side thread."""
        self._link.start()

    def close(self) -> None:
        """Say nothing more; returns at once."""
        self._link.close()

    # -- the link's side thread ---------------------------------------------------------------------------

    def _hello(self, session: Session) -> wire.Hello:
        audit = wire.Support(ok=False, reason="not an engine core")
        return self._identity.hello(session, None, audit, PERIOD_SECONDS)

    def _order(self, order: wire.Order) -> None:
        detail = f"a {self._identity.role} takes no orders"
        self._link.send(wire.OrderResult(sequence=order.sequence, ok=False, detail=detail))

    def _connected(self) -> None:
        self._next = 0.0

    def _tick(self) -> MemberReport | None:
        now = time.monotonic()
        if now < self._next or not self._link.up:
            return None
        self._next = now + PERIOD_SECONDS - _SLACK
        return self._guard.run("member", self._report, now)

    def _report(self, now: float) -> MemberReport:
        row = self.read()
        return MemberReport(
            monotonic=now,
            resident_bytes=resident_bytes(),
            worker=row if isinstance(row, WorkerRow) else None,
            frontend=row if isinstance(row, FrontendRow) else None,
        )


def resident_bytes() -> int | None:
    """This process's memory in RAM, in bytes; None without /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return None


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
