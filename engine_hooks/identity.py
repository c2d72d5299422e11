"""Who this engine process is: what its Hello says."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import secrets
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine_hooks import __version__
from engine_hooks.auth import Session
from engine_hooks.levers.orders import LeaseRow, LeverRow
from engine_hooks.members import CORE, TORCH
from engine_hooks.settings import Settings
from engine_hooks.wire import Hello, PoolInfo, Support

_COMMAND_LINE = Path("/proc/self/cmdline")  # the title, once a process has set one
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
    """One engine process, one member of an engine, or a process of its own. Drawn once, when it has come up."""

    name: str
    instance: str
    started_at: float
    index: int
    rank: int
    data_parallel_size: int
    tensor_parallel_size: int
    pipeline_parallel_size: int
    world_size: int
    local_world_size: int
    engine_version: str
    in_process: bool
    data_parallel: bool = False
    role: str = CORE

    @classmethod
    def of(cls, engine: Any, settings: Settings, *, in_process: bool) -> Identity:
        """Read who ``engine`` (an EngineCore) is."""
        config = getattr(engine, "vllm_config", None)
        parallel = getattr(config, "parallel_config", None)
        index = getattr(parallel, "data_parallel_index", None) or getattr(engine, "engine_index", 0)
        rank = getattr(parallel, "rank", 0)
        return cls._read(config, settings, CORE, index, rank, in_process=in_process)

    @classmethod
    def of_member(cls, config: Any, settings: Settings, role: str, index: int, rank: int) -> Identity:
        """Read who a process with ``config`` (a VllmConfig) is, that works as ``role`` for an engine core."""
        return cls._read(config, settings, role, index, rank, in_process=False)

    @classmethod
    def of_process(cls, name: str) -> Identity:
        """Say who a PyTorch process is that belongs to no engine."""
        return cls(
            name=_label(name),
            instance=secrets.token_hex(8),
            started_at=time.time(),
            index=0,
            rank=0,
            data_parallel_size=1,
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            world_size=0,
            local_world_size=0,
            engine_version=_label(str(getattr(sys.modules.get("torch"), "__version__", "unknown"))),
            in_process=False,
            role=TORCH,
        )

    @classmethod
    def _read(
        cls, config: Any, settings: Settings, role: str, index: int | None, rank: int | None, *, in_process: bool
    ) -> Identity:
        parallel = getattr(config, "parallel_config", None)
        try:
            version = importlib.metadata.version("vllm")
        except importlib.metadata.PackageNotFoundError:
            version = "unknown"
        return cls(
            name=_label(settings.engine_name or _served_name(config)),
            instance=secrets.token_hex(8),
            started_at=time.time(),
            index=int(index or 0),
            rank=int(rank or 0),
            data_parallel_size=int(getattr(parallel, "data_parallel_size", 1) or 1),
            tensor_parallel_size=int(getattr(parallel, "tensor_parallel_size", 1) or 1),
            pipeline_parallel_size=int(getattr(parallel, "pipeline_parallel_size", 1) or 1),
            world_size=int(getattr(parallel, "world_size", 0) or 0),
            local_world_size=_local_world_size(parallel),
            engine_version=_label(version),
            in_process=in_process,
            data_parallel=bool(index) or _is_titled_a_rank(),
            role=role,
        )

    def hello(
        self,
        session: Session,
        pool: PoolInfo | None,
        audit: Support,
        idle_period: float,
        *,
        levers: tuple[LeverRow, ...] = (),
        in_force: tuple[LeaseRow, ...] = (),
    ) -> Hello:
        """Return the Hello for one session with the agent."""
        return Hello(
            name=self.name,
            instance=self.instance,
            # A process that is started by an engine's and belongs to none has inherited the variable all the same.
            engine_id=self.instance
            if self.role == TORCH
            else _label(os.environ.get(ENGINE_ID_VARIABLE, self.instance)),
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
            role=self.role,
            data_parallel=self.data_parallel,
            parent_pid=os.getppid(),
            tensor_parallel_size=self.tensor_parallel_size,
            pipeline_parallel_size=self.pipeline_parallel_size,
            world_size=self.world_size,
            local_world_size=self.local_world_size,
            levers=levers,
            in_force=in_force,
        )


def _is_titled_a_rank() -> bool:
    """Whether vLLM has titled this process a data-parallel rank: all that a dense model's first rank still shows."""
    with contextlib.suppress(OSError):
        return re.search(rb"EngineCore_DP\d", _COMMAND_LINE.read_bytes()[:256]) is not None
    return False


def _local_world_size(parallel: Any) -> int:
    """Workers on this node; 0 where somebody else places them: Ray, or a launcher with a process for each."""
    backend = getattr(parallel, "distributed_executor_backend", None)
    if backend not in ("mp", "uni", None):
        return 0
    local = getattr(parallel, "local_world_size", None) or getattr(parallel, "world_size", None)
    return int(local or 0)
