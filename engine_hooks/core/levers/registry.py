"""The levers of an engine core; each is there unless its engine lacks what it needs."""

from __future__ import annotations

from engine_hooks.core.levers.context import CoreLever

LEVERS: tuple[type[CoreLever], ...] = ()
