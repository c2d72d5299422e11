"""The tenant map: a JSON file that gives values of the outside world a tenant's name, and tenants their quotas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from engine_hooks.names import MAX_NAME, NO_TENANT

MAX_FILE_BYTES = 1 << 20
MAX_TENANTS = 4096
OTHER = "other"

_TenantName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME, pattern=r"^[\x20-\x7e]*\Z")]


class TenantMapError(Exception):
    """The file can't be used; the text says why."""


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    values: tuple[str, ...] = ()
    quota_blocks: Annotated[int, msgspec.Meta(ge=0, le=2**40)] | None = None
    quota_ratio: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of the pool a tenant may hold: ``blocks``, or a ``ratio`` (0..1) of the capacity; None for no quota."""

    blocks: int | None = None
    ratio: float | None = None

    def of(self, capacity: int) -> int | None:
        """Return the quota in blocks of a pool of ``capacity`` blocks."""
        return int(self.ratio * capacity) if self.ratio is not None else self.blocks


@dataclass(frozen=True, slots=True)
class TenantMap:
    """``members``: ``source:value`` -> tenant. ``reserved``: names that only their own members get.

    ``quotas``: by tenant; its keys are all tenants of the file.
    """

    members: Mapping[str, str] = field(default_factory=dict)
    reserved: frozenset[str] = frozenset()
    quotas: Mapping[str, Quota] = field(default_factory=dict)


def read_map(path: Path) -> TenantMap:
    """Return the map in ``path``; raises :class:`TenantMapError`.

    The file is an object by tenant: ``{"acme": {"values": ["api_key:5f70bf18a086"], "quota_ratio": 0.2}}``.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise TenantMapError(f"{path}: {error.strerror}") from None
    if len(text) > MAX_FILE_BYTES:
        raise TenantMapError(f"{path}: more than {MAX_FILE_BYTES} bytes")
    try:
        entries = msgspec.json.decode(text, type=dict[_TenantName, _Entry])
    except msgspec.DecodeError as error:
        raise TenantMapError(f"{path}: {error}") from None
    return _checked(path, entries)


def _checked(path: Path, entries: dict[str, _Entry]) -> TenantMap:
    if len(entries) > MAX_TENANTS:
        raise TenantMapError(f"{path}: more than {MAX_TENANTS} tenants")
    members: dict[str, str] = {}
    for tenant, entry in entries.items():
        if tenant in (OTHER, NO_TENANT):
            raise TenantMapError(f"{path}: {tenant!r} can't be a tenant's name")
        if entry.quota_blocks is not None and entry.quota_ratio is not None:
            raise TenantMapError(f"{path}: {tenant!r} has quota_blocks and quota_ratio; one is allowed")
        for value in entry.values:
            key = member_key(value)
            if members.setdefault(key, tenant) != tenant:
                raise TenantMapError(f"{path}: {value!r} belongs to {members[key]!r} and to {tenant!r}")
    return TenantMap(
        members=members,
        reserved=frozenset(tenant for tenant, entry in entries.items() if entry.values),
        quotas={tenant: Quota(entry.quota_blocks, entry.quota_ratio) for tenant, entry in entries.items()},
    )


def member_key(value: str) -> str:
    """Return ``source:value`` as it is looked up: names of headers know no upper case, values do."""
    source, colon, rest = value.partition(":")
    if source != "header":
        return value
    name, second, rest = rest.partition(":")
    return f"{source}{colon}{name.lower()}{second}{rest}"
