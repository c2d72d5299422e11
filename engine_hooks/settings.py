"""What ``KVTIDE_*`` says in an engine's environment.

A bad value never stops an engine: it is reported in one line and the default is used.
"""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_hooks.wire import DEFAULT_SOCKET, KEY_NAME

logger = logging.getLogger("vllm.kvtide")  # below vLLM's own logger: its handlers show our lines


@dataclass(frozen=True, slots=True)
class Settings:
    """The hooks' configuration.

    ``agent_uids``: who may have bound the agent's socket. ``engine_name``: the value of the ``engine`` label;
    None takes the served model's name.
    """

    enabled: bool
    socket: Path
    key_file: Path
    agent_uids: frozenset[int]
    engine_name: str | None

    @classmethod
    def from_environment(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read ``KVTIDE_DISABLE``, ``_SOCKET``, ``_KEY_FILE``, ``_AGENT_UIDS`` and ``_ENGINE_NAME``."""
        env = os.environ if env is None else env
        path = Path(env.get("KVTIDE_SOCKET") or DEFAULT_SOCKET)
        return cls(
            enabled=env.get("KVTIDE_DISABLE", "").strip().lower() in ("", "0", "false", "no"),
            socket=path,
            key_file=Path(env.get("KVTIDE_KEY_FILE") or path.with_name(KEY_NAME)),
            agent_uids=_uids(env.get("KVTIDE_AGENT_UIDS", "")),
            engine_name=env.get("KVTIDE_ENGINE_NAME", "").strip() or None,
        )


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
