"""Sessions: conversations of a tenant, their turns, how long they live and how long they rest between turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple, Protocol

from engine_hooks.core.buckets import Buckets

MAX_IDLE = 4096  # sessions without a request; those that have one are as many as there are requests at most
OVER_SECONDS = 600.0  # a session that has rested so long is over
KEPT_TURNS = 2
_MAX_EXPIRED = 256  # per call


class Turn(NamedTuple):
    """One request of a session: ``start`` (monotonic seconds), ``tokens`` and ``blocks`` at its end, ``request``: its
    name for people.
    """

    start: float
    tokens: int
    blocks: int
    request: str


class Owner(Protocol):
    """Whose sessions they are: what is counted of them."""

    sessions: int
    lifetimes: Buckets
    idles: Buckets


class Session:
    """One conversation. ``alive``: its requests in the engine now; ``ended``: when the last one ended."""

    __slots__ = ("alive", "began", "ended", "owner", "turns")

    def __init__(self, owner: Owner, began: float) -> None:
        self.owner = owner
        self.began = self.ended = began
        self.alive = 0
        self.turns: deque[Turn] = deque(maxlen=KEPT_TURNS)


class SessionBook:
    """All sessions of one engine, by tenant's and session's name. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._live: dict[tuple[str, str], Session] = {}
        self._idle: OrderedDict[tuple[str, str], Session] = OrderedDict()  # who has rested longest comes first

    def begin(self, tenant: str, name: str, owner: Owner, now: float) -> None:
        """A request of this session has arrived."""
        key = (tenant, name)
        session = self._live.get(key)
        if session is None:
            self.expire(now)
            session = self._idle.pop(key, None)
            if session is None:
                session = Session(owner, now)
                owner.sessions += 1
            else:
                owner.idles.add(now - session.ended)
            self._live[key] = session
        if session.owner is not owner:  # the tenant has got, or lost, a row of its own since
            session.owner.sessions -= 1
            owner.sessions += 1
            session.owner = owner
        session.alive += 1

    def end(self, tenant: str, name: str, turn: Turn, now: float) -> None:
        """A request of this session has ended, admitted or not."""
        key = (tenant, name)
        session = self._live.get(key)
        if session is None:
            return
        session.turns.append(turn)
        session.ended = now
        session.alive -= 1
        if session.alive <= 0:
            self._idle[key] = self._live.pop(key)
            if len(self._idle) > MAX_IDLE:
                _close(self._idle.popitem(last=False)[1])

    def expire(self, now: float) -> None:
        """Close the sessions that have rested for too long, the longest first."""
        for _ in range(_MAX_EXPIRED):
            key, session = next(iter(self._idle.items()), (None, None))
            if key is None or session is None or now - session.ended < OVER_SECONDS:
                return
            _close(self._idle.pop(key))

    def hand_over(self, owner: Owner, to: Owner) -> None:
        """Let ``to`` have the sessions of ``owner``."""
        for session in (*self._idle.values(), *self._live.values()):
            if session.owner is owner:
                session.owner = to
                owner.sessions -= 1
                to.sessions += 1

    def turns(self, tenant: str, name: str) -> tuple[Turn, ...]:
        """Return the last two turns of a session, the latest last; empty when it is not known."""
        session = self._live.get((tenant, name)) or self._idle.get((tenant, name))
        return tuple(session.turns) if session is not None else ()


def _close(session: Session) -> None:
    session.owner.sessions -= 1
    session.owner.lifetimes.add(session.ended - session.began)
