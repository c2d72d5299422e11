"""What ``KVTIDE_*`` says in an engine's environment.

A bad value never stops an engine: it is reported in one line and the default is used.
"""

from __future__ import annotations

import logging
import math
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.wire import DEFAULT_SOCKET, KEY_NAME

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines


@dataclass(frozen=True, slots=True)
class Settings:
    """The hooks' configuration.

    ``agent_uids``: who may have bound the agent's socket. ``engine_name``: the value of the ``engine`` label;
    None takes the served model's name. ``pin_seconds``: after what time blocks that an unknown connector may hold count
    as leaked. ``plain_request_ids``: show ids of requests and sessions as they are, not their hashes. ``tenants``: how
    requests get a tenant and a session. ``snapshot_dir``: where the allocator's segments are written when an allocation
    fails; None: nowhere. ``history``: whether the agent may have allocations recorded for a while. ``levers``: those
    that this process obeys; none unless it is told.
    """

    enabled: bool
    socket: Path
    key_file: Path
    agent_uids: frozenset[int]
    engine_name: str | None
    pin_seconds: float = 600.0
    plain_request_ids: bool = False
    tenants: TenantSettings = field(default_factory=TenantSettings)
    snapshot_dir: Path | None = None
    history: bool = False
    levers: frozenset[str] = frozenset()

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read the ``KVTIDE_*`` variables; docs/configuration.md lists them."""
        env = os.environ if env is None else env
        path = Path(env.get("KVTIDE_SOCKET") or DEFAULT_SOCKET)
        return cls(
            enabled=not _is_on(env.get("KVTIDE_DISABLE", "")),
            socket=path,
            key_file=Path(env.get("KVTIDE_KEY_FILE") or path.with_name(KEY_NAME)),
            agent_uids=_uids(env.get("KVTIDE_AGENT_UIDS", "")),
            engine_name=env.get("KVTIDE_ENGINE_NAME", "").strip() or None,
            pin_seconds=_seconds("KVTIDE_PIN_SECONDS", env.get("KVTIDE_PIN_SECONDS", ""), default=600.0),
            plain_request_ids=_is_on(env.get("KVTIDE_PLAIN_IDS", "")),
            tenants=TenantSettings.from_environment(env),
            snapshot_dir=_folder("KVTIDE_SNAPSHOT_DIR", env.get("KVTIDE_SNAPSHOT_DIR", "")),
            history=_is_on(env.get("KVTIDE_HISTORY", "")),
            levers=frozenset(word.strip() for word in env.get("KVTIDE_LEVERS", "").split(",") if word.strip()),
        )


def _is_on(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "no")


def _seconds(name: str, text: str, default: float) -> float:
    """A number of seconds above zero; ``default`` when empty or wrong."""
    if not text.strip():
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.0 < value < math.inf:
        logger.warning("kvtide: %s: %r is not a number of seconds above 0; using %g instead", name, text, default)
        return default
    return value


def _folder(name: str, text: str) -> Path | None:
    """An absolute path; None when empty or wrong."""
    if not text.strip():
        return None
    path = Path(text)
    if not path.is_absolute() or "\0" in text:
        logger.warning("kvtide: %s: %r is not an absolute path; no snapshot is written", name, text)
        return None
    return path


def _uids(text: str) -> frozenset[int]:
    """Uids or user names, comma-separated; root and the engine's own user when empty or wrong."""
    default = frozenset({0, os.geteuid()})
    if not text.strip():
        return default
    found = set()
    for part in text.split(","):
        word = part.strip()
        try:
            found.add(int(word) if word.isdecimal() else pwd.getpwnam(word).pw_uid)
        except KeyError:
            logger.warning("kvtide: KVTIDE_AGENT_UIDS: no user %r here; using root and this user instead", word)
            return default
    return frozenset(found)
