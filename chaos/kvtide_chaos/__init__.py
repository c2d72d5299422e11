"""Faults on purpose, for staging: each lasts as long as its ``with`` block and is then taken back.

Names are loaded when they are first used: the engine's plugin lives in this package too, and an engine pays for nothing
that it doesn't use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvtide_chaos.alerts import Alert, AlertError, AlertWatch
    from kvtide_chaos.freeze import FreezeInjector
    from kvtide_chaos.hang_ups import HangUpInjector
    from kvtide_chaos.injector import InjectorError
    from kvtide_chaos.kv_blocks import KvBlockLeakInjector
    from kvtide_chaos.memory import MemoryLeakInjector

__all__ = [
    "Alert",
    "AlertError",
    "AlertWatch",
    "FreezeInjector",
    "HangUpInjector",
    "InjectorError",
    "KvBlockLeakInjector",
    "MemoryLeakInjector",
]

_HOMES = {
    "Alert": "alerts",
    "AlertError": "alerts",
    "AlertWatch": "alerts",
    "FreezeInjector": "freeze",
    "HangUpInjector": "hang_ups",
    "InjectorError": "injector",
    "KvBlockLeakInjector": "kv_blocks",
    "MemoryLeakInjector": "memory",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
