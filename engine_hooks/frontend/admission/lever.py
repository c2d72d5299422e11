"""The lever ``admission`` of an API server: puts rules in force at the gate, and takes them away."""

from __future__ import annotations

from collections.abc import Callable

from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.judge import Use
from engine_hooks.frontend.admission.rules import Rules, rules_of
from engine_hooks.frontend.admission.size import Pool
from engine_hooks.frontend.admission.table import Table, TableError
from engine_hooks.levers.base import Done, RefusedError
from engine_hooks.levers.orders import Arguments


class Admission:
    """Runs on the link's side thread. ``open_table``: makes the table when the first rules come; what it raises
    (:class:`TableError`) is why there can be none.
    """

    NAME = "admission"
    REPLACES = True  # requests come on another thread: none may find the gate open while rules are changed

    def __init__(self, gate: Gate, pool: Pool | None, open_table: Callable[[], Table], reason: str = "") -> None:
        if reason:
            raise RefusedError("unsupported", reason)
        if pool is None:
            raise RefusedError("unsupported", "this vLLM does not say how large its KV pool is")
        self._gate = gate
        self._pool = pool
        self._open_table = open_table

    def would(self, arguments: Arguments) -> dict[str, int | float]:
        """Return how many rules would be in force, and what is in flight under those before."""
        return self._effect(self._checked(arguments), arguments)

    def apply(self, arguments: Arguments) -> Done:
        """Put the rules in force for all requests that come from now on."""
        rules = self._checked(arguments)
        gate = self._gate
        if gate.table is None:
            try:
                gate.table = self._open_table()
            except TableError as error:
                raise RefusedError("unsupported", str(error)) from None
        effect = self._effect(rules, arguments)
        before = gate.refused.total
        gate.rules = rules
        gate.count_earlier()

        def undo() -> dict[str, int | float]:
            if gate.rules is rules:
                gate.rules = None
            return {"refused": gate.refused.total - before}

        return Done(effect, undo)

    def _checked(self, arguments: Arguments) -> Rules:
        if why := self._gate.unjudged():
            raise RefusedError("unsupported", why)
        rules = rules_of(arguments)
        reserved = int(sum(rules.reserved.values()))
        if reserved > self._pool.blocks:
            raise RefusedError("bad_argument", f"reserved: {reserved} blocks: the pool has {self._pool.blocks}")
        return rules

    def _effect(self, rules: Rules, arguments: Arguments) -> dict[str, int | float]:
        table, earlier = self._gate.table, self._gate.earlier.in_flight()
        use = table.total() if table is not None else Use()
        return {
            "rules": len(arguments),
            "capacity_blocks": self._pool.blocks,
            "reserved_blocks": int(sum(rules.reserved.values())),
            "in_flight_blocks": use.blocks + earlier.blocks,
            "in_flight_requests": use.requests + earlier.requests,
        }
