"""The fleet's word: what a person orders for all nodes at once, in one place that each of them reads: a file, or the
Lease that they share.

It is one word (``on``, ``off``, or why it is off), or JSON as ``kvtide actions fleet`` writes it.
"""

from __future__ import annotations

import msgspec

from agent.actions.vetoes import ANY, Veto
from agent.subject import Value

MOST_VETOES = 64
ON = frozenset({"", "on", "0", "false", "no"})


class FleetUndo(Value, frozen=True, kw_only=True):
    """What was begun before ``before`` (Unix seconds) with a lever on an engine (``*``: any) is taken back."""

    before: float
    by: str
    lever: str = ANY
    engine: str = ANY

    def means(self, at: float, lever: str, engine: str) -> bool:
        """Whether what was begun at ``at`` is meant."""
        return at < self.before and self.lever in (ANY, lever) and self.engine in (ANY, engine)


class FleetOrders(Value, frozen=True, kw_only=True):
    """``off``: why nothing may be done, empty where it may. A breaker that has opened before ``closed_at`` (Unix
    seconds) is closed. Clocks of nodes are as close as NTP keeps them.
    """

    off: str = ""
    vetoes: tuple[Veto, ...] = ()
    undo: FleetUndo | None = None
    closed_at: float | None = None
    closed_by: str = ""


def parse(text: str) -> FleetOrders:
    """Return what the file says; raises ``ValueError``."""
    if not text.lstrip().startswith("{"):
        word = text.strip().partition("\n")[0].strip()
        return FleetOrders(off="" if word.lower() in ON else word)
    try:
        return msgspec.json.decode(text.encode(), type=FleetOrders)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def with_veto(orders: FleetOrders, veto: Veto, now: float) -> FleetOrders:
    """Return ``orders`` with one veto more; those that are over, or the oldest of too many, go."""
    others = [
        each for each in orders.vetoes if each.until > now and (each.lever, each.engine) != (veto.lever, veto.engine)
    ]
    return msgspec.structs.replace(orders, vetoes=(*others, veto)[-MOST_VETOES:])
