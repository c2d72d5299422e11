"""The rules of admission that are in force: one immutable value, made from the flat arguments of an order.

Tables are by tenant. A rule that is not named is not in force. Counts are of what has been let in under these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine_hooks.frontend.tenant_map import Quota
from engine_hooks.levers.base import RefusedError, number, whole
from engine_hooks.levers.orders import Arguments

# Of all tables together: an order in force goes back to the agent in each report, and a frame is 64 KiB.
MAX_ENTRIES = 256
MAX_RESERVED = 32  # each is looked up for each request
MAX_BLOCKS = 2**40
MAX_REQUESTS = 2**20
MAX_TOKENS = 2**31
MAX_FACTOR = 1000.0
LONGEST_WAIT_SECONDS = 2.0

MAX_RATE = 1e6

# What each argument may be.
_SWITCHES = frozenset({"shed", "map_quotas", "short_first", "clean"})
_TABLES = {
    "quotas": MAX_BLOCKS,
    "reserved": MAX_BLOCKS,
    "concurrency": MAX_REQUESTS,
    "long_sessions": MAX_REQUESTS,
    "sla_factors": MAX_FACTOR,
    "paid_factors": MAX_FACTOR,
}
_WHOLE = {
    "retry_after": (1, 3600),
    "default_quota": (0, MAX_BLOCKS),
    "default_concurrency": (0, MAX_REQUESTS),
    "default_long_sessions": (0, MAX_REQUESTS),
    "long_tokens": (1, MAX_TOKENS),
    "max_prompt": (1, MAX_TOKENS),
    "batch_prompt": (1, MAX_TOKENS),
    "prompt_limit": (1, MAX_TOKENS),
    "max_tokens": (1, MAX_TOKENS),
    "burst": (1, MAX_REQUESTS),
    "in_flight": (0, MAX_REQUESTS),
    "short_tokens": (1, MAX_TOKENS),
}
_NUMBERS = {
    "pool_share": (0.01, 1.0),
    "rate": (0.01, MAX_RATE),
    "long_wait_seconds": (0.0, LONGEST_WAIT_SECONDS),
    "pressure": (0.0, 100.0),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """``shed``: let nothing in. ``retry_after``: seconds, told with each refusal.

    ``quotas``: KV blocks by tenant; ``map_quotas``: whether those of the tenant map count for the others;
    ``default_quota`` for who has neither; ``sla_factors`` and ``paid_factors`` scale them. ``reserved``: blocks that
    others leave free. ``concurrency``, ``long_sessions``: requests at a time, and those of them whose prompt is longer
    than ``long_tokens``. ``max_prompt``: refused under pressure; over ``batch_prompt`` with the advice to use the batch
    path. ``prompt_limit``: no prompt may ever be longer. ``max_tokens``: where a request says none, or zero.
    ``pool_share``: of one rank's pool, for one request. ``rate`` (requests a second), ``burst`` and ``in_flight``: of
    this API server. ``short_first``: prompts over ``short_tokens`` wait for shorter requests, ``long_wait_seconds`` at
    most. ``pressure``: percent, for the ladder of models. ``clean``: take invisible characters out of prompts.
    """

    shed: bool = False
    retry_after: int = 5
    quotas: Mapping[str, float] = field(default_factory=dict)
    default_quota: int | None = None
    map_quotas: bool = True
    sla_factors: Mapping[str, float] = field(default_factory=dict)
    paid_factors: Mapping[str, float] = field(default_factory=dict)
    reserved: Mapping[str, float] = field(default_factory=dict)
    concurrency: Mapping[str, float] = field(default_factory=dict)
    default_concurrency: int | None = None
    long_sessions: Mapping[str, float] = field(default_factory=dict)
    default_long_sessions: int | None = None
    long_tokens: int = 8192
    max_prompt: int | None = None
    batch_prompt: int = 8192
    prompt_limit: int | None = None
    max_tokens: int | None = None
    pool_share: float | None = None
    rate: float | None = None
    burst: int = 1
    in_flight: int | None = None
    short_first: bool = False
    short_tokens: int = 2048
    long_wait_seconds: float = LONGEST_WAIT_SECONDS
    pressure: float | None = None
    clean: bool = False

    def quota_of(self, tenant: str, mapped: Quota | None, capacity: int | None) -> int | None:
        """Return a tenant's quota in blocks: base * (1 + SLA factor) * paid-rate factor (DESIGN section 7); None for
        none. ``mapped``: its quota in the tenant map; ``capacity``: blocks of the pool, None where unknown.
        """
        base: float | None = self.quotas.get(tenant)
        if base is None and self.map_quotas and mapped is not None:
            base = mapped.of(capacity) if capacity is not None else mapped.blocks
        if base is None:
            base = self.default_quota
        if base is None:
            return None
        return int(base * (1.0 + self.sla_factors.get(tenant, 0.0)) * self.paid_factors.get(tenant, 1.0))

    def concurrency_of(self, tenant: str) -> int | None:
        """Return how many requests of ``tenant`` may be in flight; None for any number."""
        return _of(self.concurrency, tenant, self.default_concurrency)

    def long_sessions_of(self, tenant: str) -> int | None:
        """Return how many requests of ``tenant`` with a long context may be in flight; None for any number."""
        return _of(self.long_sessions, tenant, self.default_long_sessions)


NAMES = frozenset(Rules.__dataclass_fields__)


def rules_of(arguments: Arguments) -> Rules:
    """Return the rules that ``arguments`` say; raises :class:`RefusedError` with ``bad_argument``."""
    unknown = sorted(set(arguments) - NAMES)
    if unknown:
        raise RefusedError("bad_argument", f"{unknown[0]}: there is no such rule; rules are {', '.join(sorted(NAMES))}")
    entries = sum(len(value) for value in arguments.values() if isinstance(value, dict))
    if entries > MAX_ENTRIES:
        raise RefusedError("bad_argument", f"{entries} tenants in all tables together: {MAX_ENTRIES} are allowed")
    reserved = arguments.get("reserved")
    if isinstance(reserved, dict) and len(reserved) > MAX_RESERVED:
        raise RefusedError("bad_argument", f"reserved: {len(reserved)} tenants: {MAX_RESERVED} are allowed")
    values: dict[str, object] = {}
    for name in arguments:
        if name in _SWITCHES:
            values[name] = _switch(arguments, name)
        elif name in _TABLES:
            values[name] = _table(arguments, name, _TABLES[name], is_whole=_TABLES[name] != MAX_FACTOR)
        elif name in _WHOLE:
            values[name] = whole(arguments, name, *_WHOLE[name])
        else:
            values[name] = number(arguments, name, *_NUMBERS[name])
    if "rate" in values and "burst" not in values:
        values["burst"] = max(1, int(number(arguments, "rate", 0, MAX_RATE)))  # a second's worth
    return Rules(**values)  # type: ignore[arg-type]


def _of(table: Mapping[str, float], tenant: str, default: int | None) -> int | None:
    value = table.get(tenant)
    return default if value is None else int(value)


def _switch(arguments: Arguments, name: str) -> bool:
    value = arguments[name]
    if not isinstance(value, bool):
        raise RefusedError("bad_argument", f"{name}: {str(value)[:40]!r}: must be true or false")
    return value


def _table(arguments: Arguments, name: str, most: float, *, is_whole: bool) -> dict[str, float]:
    table = arguments[name]
    if not isinstance(table, dict):
        raise RefusedError("bad_argument", f"{name}: {str(table)[:40]!r}: must be a table by tenant")
    for tenant, value in table.items():
        if isinstance(value, bool) or not 0 <= value <= most or (is_whole and value != int(value)):
            kind = "whole number" if is_whole else "number"
            raise RefusedError("bad_argument", f"{name}: {tenant}: {value!r}: must be a {kind} in 0..{most:g}")
    return dict(table)
