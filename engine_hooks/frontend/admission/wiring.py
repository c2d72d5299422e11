"""Joins the gate of this process to its application, its AsyncLLM and its link."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from engine_hooks.frontend.admission.gate import Gate
from engine_hooks.frontend.admission.lever import Admission
from engine_hooks.frontend.admission.shared import SharedTable, folder_of_this_user
from engine_hooks.frontend.admission.size import Pool
from engine_hooks.frontend.admission.table import Process, Table, TableError
from engine_hooks.frontend.admission.upstreams import Upstreams
from engine_hooks.frontend.settings import TenantSettings
from engine_hooks.guard import Guard
from engine_hooks.identity import ENGINE_ID_VARIABLE
from engine_hooks.levers.base import Lever
from engine_hooks.levers.desk import LeverDesk, build
from engine_hooks.settings import Settings

_NOT_HTTP = ("vllm.entrypoints.grpc_server", "vllm.entrypoints.launchers.grpc_server")


_gates: list[Gate] = []  # one environment, one gate
_guard = Guard()


def guard_of_process() -> Guard:
    """Return what catches the exceptions of our hooks in an API server, and counts them for its reports."""
    return _guard


def gate_of_process(settings: TenantSettings) -> Gate:
    """Return the gate of this process, made by whoever asks first."""
    if not _gates:
        _gates.append(Gate(settings, Upstreams.from_environment(os.environ)))
    return _gates[0]


def open_desk(gate: Gate, async_llm: Any, *, instance: str, settings: Settings, servers: int, number: int) -> LeverDesk:
    """Return the desk of one of ``servers`` API servers, the ``number``-th, in front of ``async_llm``."""
    config = async_llm.vllm_config
    gate.pool = pool_of(async_llm)
    gate.notes = Admission.NAME in settings.levers
    model = getattr(config, "model_config", None)
    served = getattr(model, "served_model_name", None)
    gate.served = frozenset([served] if isinstance(served, str) else served or ())

    def open_table() -> Table:
        if servers == 1:
            return Table(None, time.monotonic)
        parent = Process.of(os.getppid())
        if parent is None:
            raise TableError("the process that started the API servers can't be seen")
        engine = os.environ.get(ENGINE_ID_VARIABLE, "engine")
        shared = SharedTable(folder_of_this_user(), engine, parent, number)
        gate.on_close = shared.close
        return shared.table

    def make() -> Lever:
        return Admission(gate, gate.pool, open_table, _why_not())

    levers, unsupported = build([(Admission.NAME, make)])
    return LeverDesk(instance, levers, unsupported=unsupported, allowed=settings.levers, guard=guard_of_process())


def pool_of(async_llm: Any) -> Pool | None:
    """Return the pool as vLLM's configuration has it once the engine has come up; None where it doesn't say."""
    config = async_llm.vllm_config
    cache = getattr(config, "cache_config", None)
    blocks = getattr(cache, "num_gpu_blocks", None)
    block_tokens = getattr(cache, "effective_attention_block_size", None) or getattr(cache, "block_size", None)
    model_tokens = getattr(getattr(config, "model_config", None), "max_model_len", None)
    engines = getattr(getattr(async_llm, "engine_core", None), "core_engines", None)
    if not isinstance(engines, list | tuple) or not engines:
        engines = range(int(getattr(config.parallel_config, "data_parallel_size", 1) or 1))
    ranks = len(engines)
    if not blocks or not block_tokens or not model_tokens or blocks <= ranks:
        return None
    return Pool(int(block_tokens), int(blocks) - ranks, ranks, int(model_tokens))  # a null block in each


def _why_not() -> str:
    main = getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "")
    if main in _NOT_HTTP or any(name in sys.modules for name in _NOT_HTTP):
        return "this front end serves gRPC, not HTTP; enforce_admission of its engine core refuses in its place"
    return ""
