"""How requests ended, and what each left behind: the evidence for whose a leaked block is.

A block that kept its reference when its request's blocks were given back (or lost one too many) is caught with its last
owner's name on it, long before an audit finds it. What is given back later (deferred frees) or elsewhere is found
through the audit's traces.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import msgspec

from engine_hooks.core.how_ended import (
    ABORTED_ENGINE,
    ABORTED_FRONT_END,
    CONNECTOR_FAILURE,
    ERROR,
    FINISHED,
    STOP_OR_ABORT,
)
from engine_hooks.core.marks import Marks
from engine_hooks.core.observers import Context
from engine_hooks.names import printable, short_hash

MAX_REMEMBERED = 8192  # ended requests
MAX_CAUGHT = 8192  # blocks
CAUGHT_SECONDS = 600.0
MAX_ID = 256  # characters: a client chooses the front of its request's id, and a front end may take megabytes of it

PREEMPTED, RUNNING, UNKNOWN = "preempted", "running", "unknown"
ENDINGS = (FINISHED, ABORTED_FRONT_END, STOP_OR_ABORT, ABORTED_ENGINE, PREEMPTED, CONNECTOR_FAILURE, ERROR)


class Ending(msgspec.Struct, frozen=True, gc=False):
    """The end of a request, or of one of its runs: whose it was, ``how`` (one of :data:`ENDINGS`), when (monotonic).

    ``request``: its id as the scheduler knows it, which is not for people; of a very long one what :func:`key_of` makes
    of it, and its ``name`` for people, which could not be made of that any more.
    """

    request: str
    marks: Marks
    how: str
    at: float
    name: str = ""


def key_of(request_id: str) -> str:
    """Return what an ended request is remembered by: its id, unless thousands as long as that would be too much."""
    if len(request_id) <= MAX_ID:
        return request_id
    digest = hashlib.blake2b(request_id.encode(errors="replace"), digest_size=16).hexdigest()
    return f"{request_id[:MAX_ID]}~{digest}"


class Endings:
    """Remembers how the last requests ended, and the blocks that did not come back with them.

    ``by_request``: :func:`key_of` a request's id -> ending, the newest last. ``caught``: block id -> the ending at
    which it kept a reference or lost one too many. Both are bounded; the oldest are forgotten.
    """

    HOOK = "endings"

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self._how_ended = context.how_ended
        self._marks_of = context.marks_of
        self._plain = context.settings.plain_request_ids
        self.by_request: OrderedDict[str, Ending] = OrderedDict()
        self.caught: OrderedDict[int, Ending] = OrderedDict()
        self._taps = taps = context.taps
        taps.departed.append(self._departed)
        taps.preempting.append(self._preempting)
        taps.unreturned.append(self._unreturned)

    def name_of(self, request_id: str) -> str:
        """Return what people see of a request's id."""
        return printable(request_id) if self._plain else short_hash(request_id)

    def _departed(self, request: Any, from_outside: tuple[Any, ...], at: float, *_: Any) -> None:
        self._remember(request, self._how_ended.of(request, from_outside), at)

    def _remember(self, request: Any, how: str, now: float) -> None:
        request_id = request.request_id
        key = key_of(request_id)
        name = "" if key is request_id else self.name_of(request_id)
        self.by_request.pop(key, None)
        self.by_request[key] = Ending(key, self._marks_of(request), how, now, name)
        if len(self.by_request) > MAX_REMEMBERED:
            self.by_request.popitem(last=False)

    def _preempting(self, request: Any) -> None:
        self._taps.later((self._remember,), request, PREEMPTED, self._clock())

    def _unreturned(self, request_id: str, blocks: tuple[int, ...]) -> None:
        ending = self.by_request.get(key_of(request_id))
        if ending is None:
            return
        for block in blocks:
            self.caught.pop(block, None)
            self.caught[block] = ending
        while len(self.caught) > MAX_CAUGHT:
            self.caught.popitem(last=False)

    def forget_old(self, now: float) -> None:
        """Forget caught blocks that are older than any audit takes to judge them."""
        while self.caught:
            block, ending = next(iter(self.caught.items()))
            if now - ending.at < CAUGHT_SECONDS:
                return
            del self.caught[block]
