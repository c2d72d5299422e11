"""The wire's messages about levers: what is ordered, what became of it, what is in force, what there is."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from engine_hooks.wire_types import Message, Name, Text

MAX_ARGUMENTS = 64
MAX_ENTRIES = 1024  # of one argument that is a table, such as quotas by tenant
MAX_LEVERS = 32
MAX_LEASE_SECONDS = 3600.0

# try: say what apply would do, and change nothing. renew: keep what is in force for another lease. amend: the same with
# other arguments. undo: end it now.
Op = Literal["try", "apply", "renew", "amend", "undo"]

Table = Annotated[dict[Name, int | float], msgspec.Meta(max_length=MAX_ENTRIES)]
Argument = bool | int | float | Text | Table
Arguments = Annotated[dict[Name, Argument], msgspec.Meta(max_length=MAX_ARGUMENTS)]
Effect = Annotated[dict[Name, int | float], msgspec.Meta(max_length=MAX_ARGUMENTS)]


class ActionOrder(Message, frozen=True, kw_only=True):
    """Pull, keep or let go of a lever. ``action``: the agent's own name for it; a name is obeyed once, however often it
    comes. ``instance``: the process that is meant; a successor refuses.

    ``lease_seconds``: after so long without a renewal the process undoes it by itself. ``valid_seconds``: an order that
    has waited longer is refused: the reason for it may be gone.
    """

    action: Name
    lever: Name
    op: Op
    instance: Name
    lease_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_LEASE_SECONDS)] = 30.0
    valid_seconds: Annotated[float, msgspec.Meta(ge=0.0, le=MAX_LEASE_SECONDS)] = 2.0
    arguments: Arguments = msgspec.field(default_factory=dict)


class ActionResult(Message, frozen=True, kw_only=True):
    """What became of an order, or of a lease that ran out (``op`` is undo and ``code`` expired then).

    ``code``: one of :data:`CODES`. ``effect``: what was measured in the process, before and after, in named numbers
    (``blocks``, ``before_...``, ``after_...``). ``in_force``: whether a lease on it stands now; with ``busy`` nobody
    has looked. ``seconds``: what it took on the thread that it ran on.
    """

    action: Name
    lever: Name
    op: Op
    ok: bool
    code: Name
    detail: Text = ""
    effect: Effect = msgspec.field(default_factory=dict)
    in_force: bool = False
    seconds: float = 0.0


# done, would: it was, or could be, done. The others say why not, or how it ended.
CODES = (
    "done",
    "would",
    "undone",
    "expired",
    "not_allowed",  # not in this process's KVTIDE_LEVERS
    "unsupported",  # this engine has not what it needs
    "wrong_engine",  # the order names another process
    "stale",  # it waited too long
    "conflict",  # another action holds the same lever
    "unsafe",  # it would harm what runs
    "nothing",  # there is nothing that it would do
    "unknown",  # no such lever, or nothing in force under this name
    "bad_argument",
    "busy",  # too many orders at once: this one was not looked at, and may be given again
    "failed",  # it raised; what it had begun was undone
)


class LeverRow(Message, frozen=True, kw_only=True):
    """A lever of this process. ``ok``: supported and allowed; ``reason`` says which of the two is missing."""

    lever: Name
    ok: bool
    reason: Text = ""


class LeaseRow(Message, frozen=True, kw_only=True):
    """What is in force: whoever connects learns of it and can renew it."""

    action: Name
    lever: Name
    left_seconds: float
    arguments: Arguments = msgspec.field(default_factory=dict)
