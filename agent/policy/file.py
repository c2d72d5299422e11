"""A policy from a file: YAML with the profile and only the keys that differ from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import yaml
from pydantic import BaseModel

from agent.errors import ConfigError
from agent.policy.types import DEFAULT, Policy, Profile
from agent.settings_file import checked, read, shown

PROFILES: tuple[str, ...] = get_args(Profile)
_COMMENT_COLUMN = 40


def load(file: Path) -> Policy:
    """Return the policy in ``file``; raises :class:`ConfigError` with one line: key, value, what is allowed."""
    return checked(Policy, read(file), str(file))


def of_profile(name: str) -> Policy:
    """Return the policy of a profile with nothing changed; raises :class:`ConfigError`."""
    if name not in PROFILES:
        raise ConfigError(f"profile: {name!r}: must be one of {', '.join(PROFILES)}")
    return Policy(profile=cast(Profile, name))


def choose(text: str) -> Policy:
    """Return the policy that ``text`` names: a profile, or else a file; raises :class:`ConfigError`."""
    if text in PROFILES:
        return of_profile(text)
    try:
        there = Path(text).exists()
    except OSError as error:  # a name that no file can have, a folder that may not be looked into
        raise ConfigError(f"policy {shown(text)}: {error.strerror}") from None
    if not there:
        raise ConfigError(f"policy {shown(text)}: there is no such file, and no such profile ({', '.join(PROFILES)})")
    return load(Path(text))


def differences(policy: Policy, from_: Policy) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys in which ``policy`` differs, each with its value here and there."""
    there = dict(_values(from_))
    return {key: (value, there[key]) for key, value in _values(policy) if value != there[key]}


def _values(model: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _values(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def text_of(policy: Policy) -> str:
    """Return all of ``policy`` as YAML with a comment for each key; what is read back from it is the same policy."""
    lines = [
        "# A policy of kvtide: every threshold. Ratios are 0..1, rates are shares of the pool (or of the memory) a",
        "# minute. A file needs only the keys that differ; kvtide policy check FILE tells what is wrong with one.",
    ]
    for name, field in Policy.model_fields.items():
        value = getattr(policy, name)
        if isinstance(value, BaseModel):
            lines += ["", f"{name}:  # {(type(value).__doc__ or '').splitlines()[0]}"]
            kept = getattr(DEFAULT, name)
            lines += [
                _line(f"  {key}", getattr(value, key), getattr(kept, key), inner.description)
                for key, inner in type(value).model_fields.items()
            ]
        else:
            lines += ["", _line(name, value, getattr(DEFAULT, name), field.description)]
    return "\n".join(lines) + "\n"


def _line(key: str, value: Any, default: Any, description: str | None) -> str:
    changed = f" (default: {_yaml(default)})" if value != default else ""
    return f"{f'{key}: {_yaml(value)}':{_COMMENT_COLUMN}}  # {description}{changed}"


def _yaml(value: Any) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=float("inf")).removesuffix("...\n").strip()
