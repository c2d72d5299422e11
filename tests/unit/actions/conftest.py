"""A rig for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent.policy.types import Policy
from tests.unit.actions.rig import Rig

MakeRig = Callable[..., Awaitable[Rig]]


@pytest.fixture
async def make_rig(tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeRig]:
    """Make a rig with one engine, or with what is said of it."""
    # The link counts orders by real time, and the rig's minutes take none.
    monkeypatch.setattr("engine_hooks.link.ORDERS_AT_ONCE", 1e9)
    made: list[Rig] = []

    async def make(chosen: Policy | None = None, **process: Any) -> Rig:
        rig = Rig(tmp_path, key_file, chosen)
        made.append(rig)
        await rig.start()
        await rig.add(**process)
        return rig

    yield make
    for rig in made:
        await rig.close()
