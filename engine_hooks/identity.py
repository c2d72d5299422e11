"""Who this engine process is: what its Hello says."""

from __future__ import annotations

import importlib.metadata
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_hooks import __version__
from engine_hooks.auth import Session
from engine_hooks.settings import Settings
from engine_hooks.wire import Hello, PoolInfo, Support

ENGINE_ID_VARIABLE = "KVTIDE_ENGINE_ID"


def share_engine_id() -> None:
    """Draw this engine's id, unless a parent process did: children inherit it through the environment."""
    os.environ.setdefault(ENGINE_ID_VARIABLE, secrets.token_hex(8))


def _served_name(config: Any) -> str:
    """The first served model name, or the last part of the model's path, as vLLM's own metrics label it."""
    model = getattr(config, "model_config", None)
    name = getattr(model, "served_model_name", None) or getattr(model, "model", None) or "engine"
    if isinstance(name, list | tuple):
        name = name[0] if name else "engine"
    return Path(str(name)).name or "engine"


def _label(text: str) -> str:
    """A name fit for a label: printable, no quotes or control characters, at most 64 characters."""
    return re.sub(r"[^\w.:/@+-]", "_", text, flags=re.ASCII)[:64] or "engine"


@dataclass(frozen=True, slots=True)
class Identity:
    """One engine process. Drawn once, when its engine core has come up."""

    name: str
    instance: str
    started_at: float
    index: int
    rank: int
    data_parallel_size: int
    engine_version: str
    in_process: bool

    @classmethod
    def of(cls, engine: Any, settings: Settings, *, in_process: bool) -> Identity:
        """Read who ``engine`` (an EngineCore) is."""
        config = getattr(engine, "vllm_config", None)
        parallel = getattr(config, "parallel_config", None)
        try:
            version = importlib.metadata.version("vllm")
        except importlib.metadata.PackageNotFoundError:
            version = "unknown"
        return cls(
            name=_label(settings.engine_name or _served_name(config)),
            instance=secrets.token_hex(8),
            started_at=time.time(),
            index=int(getattr(parallel, "data_parallel_index", None) or getattr(engine, "engine_index", 0) or 0),
            rank=int(getattr(parallel, "rank", 0) or 0),
            data_parallel_size=int(getattr(parallel, "data_parallel_size", 1) or 1),
            engine_version=_label(version),
            in_process=in_process,
        )

    def hello(self, session: Session, pool: PoolInfo | None, audit: Support, idle_period: float) -> Hello:
        """Return the Hello for one session with the agent."""
        return Hello(
            name=self.name,
            instance=self.instance,
            engine_id=_label(os.environ.get(ENGINE_ID_VARIABLE, self.instance)),
            host=socket.gethostname(),
            pid=os.getpid(),
            pid_namespace=Path("/proc/self/ns/pid").stat().st_ino,
            index=self.index,
            rank=self.rank,
            data_parallel_size=self.data_parallel_size,
            started_at=self.started_at,
            engine_version=self.engine_version,
            hooks_version=__version__,
            in_process=self.in_process,
            idle_period_seconds=idle_period,
            pool=pool,
            audit=audit,
            mac=session.engine_proof(),
        )
