"""What several levers ask of their arguments, and of the engine that they are made for."""

from __future__ import annotations

from typing import Any

from engine_hooks.levers.base import RefusedError
from engine_hooks.levers.orders import Arguments


def only(arguments: Arguments, *known: str) -> None:
    """Refuse an argument that the lever does not know: a misspelt limit must not be taken for none."""
    for name in arguments:
        if name not in known:
            raise RefusedError("bad_argument", f"{name[:40]}: known are {', '.join(known) or 'none'}")


def one_of(arguments: Arguments, *names: str) -> str:
    """Return which one of ``names`` is given; refuse none and several."""
    given = [name for name in names if name in arguments]
    if len(given) != 1:
        raise RefusedError("bad_argument", f"one of {', '.join(names)} is needed, {len(given)} are given")
    return given[0]


def flag(arguments: Arguments, name: str) -> bool:
    """Return a boolean argument, False where it is not given."""
    value = arguments.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError("bad_argument", f"{name}: must be true or false")
    return value


def priority_of(arguments: Arguments) -> frozenset[str]:
    """Return the tenants that are touched last: those of the table ``priority`` with a number other than 0."""
    table = arguments.get("priority", {})
    if not isinstance(table, dict):
        raise RefusedError("bad_argument", "priority: must be a table of tenants, such as {gold: 1}")
    return frozenset(tenant for tenant, weight in table.items() if weight)


def need(owner: Any, *names: str) -> None:
    """Refuse, as unsupported, where ``owner`` lacks one of ``names``."""
    for name in names:
        if not hasattr(owner, name):
            raise RefusedError("unsupported", f"{owner.__class__.__name__} has no {name}")
