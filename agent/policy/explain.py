"""What one key of the policy does, what it is here and where from, and which modules read it; and the file's schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from agent.errors import ConfigError
from agent.generated_page import keys
from agent.policy.profiles import OVERRIDES
from agent.policy.types import DEFAULT, Policy

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "alerts")
NOT_READERS = ("agent/policy/", "agent/cli/")
_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
_IMPORT = re.compile(r"^(from|import) .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Explained:
    """One key. ``source``: file, profile or default; ``default``: of the profile ``default``."""

    key: str
    does: str
    allowed: str
    value: Any
    source: str
    default: Any
    readers: tuple[str, ...]


def all_keys() -> dict[str, FieldInfo]:
    """Return every key with dots, in the file's order."""
    return dict(keys(Policy))


def explained(key: str, policy: Policy, given: Any, where: str) -> Explained:
    """Explain a key of ``policy``, which was made of ``given`` from ``where``. Raises :class:`ConfigError`."""
    known = all_keys()
    if key not in known:
        near = [each for each in known if key.rpartition(".")[2] in each] or list(known)
        raise ConfigError(f"{key}: there is no such key; there are: {', '.join(near[:12])}")
    section, _, name = key.rpartition(".")
    inner = given.get(section, {}) if section and isinstance(given, dict) else given
    if isinstance(inner, dict) and name in inner:
        source = where
    elif name in OVERRIDES.get(policy.profile, {}).get(section, {}):
        source = f"profile {policy.profile}"
    else:
        source = "default"
    field = known[key]
    return Explained(
        key=key,
        does=field.description or "",
        allowed=", ".join(_allowed(field)),
        value=_value(policy, key),
        source=source,
        default=_value(DEFAULT, key),
        readers=readers_of(key),
    )


def schema() -> str:
    """Return the JSON schema of a policy file."""
    told = Policy.model_json_schema()
    told |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Policy of kvtide"}
    return json.dumps(told, indent=2)


@cache
def readers_of(key: str) -> tuple[str, ...]:
    """Return the modules that read a key: those that name both its section and itself."""
    section, _, name = key.rpartition(".")
    own = re.compile(rf"\.{name}\b")
    around = re.compile(rf"\.{section}\b|\b{_class_of(section)}\b") if section else own
    found = [where for where, text in _sources() if own.search(text) and around.search(text)]
    inside = f"agent/policy/{section}.py" if section else ""
    own_readers = [where for where, text in _all_sources() if where == inside and re.search(rf"self\.{name}\b", text)]
    return tuple(dict.fromkeys([*found, *own_readers]))


def _class_of(section: str) -> str:
    annotation = Policy.model_fields[section].annotation
    return annotation.__name__ if isinstance(annotation, type) else section


def _sources() -> Iterator[tuple[str, str]]:
    return (each for each in _all_sources() if not each[0].startswith(NOT_READERS))


@cache
def _all_sources() -> tuple[tuple[str, str], ...]:
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return tuple(
        (path.relative_to(ROOT).as_posix(), _IMPORT.sub("", path.read_text(encoding="utf-8"))) for path in files
    )


def _value(policy: Policy, key: str) -> Any:
    section, _, name = key.rpartition(".")
    return getattr(getattr(policy, section) if section else policy, name)


def _allowed(field: FieldInfo) -> Iterator[str]:
    yield _kind(field.annotation)
    yield from _limits(field.metadata)


def _kind(kind: Any) -> str:
    """Return a type in people's words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(parts)}"
    if origin is Annotated:
        limits = [
            limit for part in parts[1:] for limit in _limits(part.metadata if isinstance(part, FieldInfo) else [])
        ]
        return " ".join([_kind(parts[0]), *limits])
    if origin is dict:
        return f"a table; each name: {_kind(parts[0])}; each value: {_kind(parts[1])}"
    if origin is tuple:
        return f"a list of {_kind(parts[0])}"
    return _NAMES.get(kind, str(kind))


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for limit in metadata:
        for name, sign in (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<")):
            value = getattr(limit, name, None)
            if value is not None:
                yield f"{sign} {value}"
