"""Whom a verdict or an action is about."""

from __future__ import annotations

from typing import Literal

import msgspec

Scope = Literal["engine", "tenant", "gpu", "process", "host", "node", "source"]


class Value(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all state values."""


class Subject(Value, frozen=True, kw_only=True, order=True):
    """What a verdict is about. Fields that do not concern its ``scope`` are empty.

    ``engine``: its label, also that of the engine a process or a cgroup belongs to; ``process``: a PyTorch process of
    no engine, or ``role/rank`` of an engine's; ``source``: one of the agent's sources.
    """

    scope: Scope
    engine: str = ""
    tenant: str = ""
    gpu: str = ""
    process: str = ""
    source: str = ""

    def __str__(self) -> str:
        """What people call it."""
        parts = (self.engine, self.tenant, self.gpu and f"GPU {self.gpu}", self.process, self.source)
        return " ".join(part for part in parts if part) or self.scope
