"""Fixtures for a team's own tests: do harm, and assert that the right alert fires.

Every injector that a test starts is stopped when the test ends, however it ends. Nothing heavy is imported before a
test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kvtide_chaos.alerts import AlertWatch
    from kvtide_chaos.freeze import FreezeInjector
    from kvtide_chaos.hang_ups import HangUpInjector
    from kvtide_chaos.kv_blocks import KvBlockLeakInjector
    from kvtide_chaos.memory import MemoryLeakInjector


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add where alerts are asked for, as options and as settings of the ini file."""
    group = parser.getgroup("kvtide-chaos")
    for name, what in (("prometheus", "Prometheus"), ("alertmanager", "Alertmanager")):
        text = f"address of the {what} that the alert_watch fixture asks"
        group.addoption(f"--chaos-{name}", metavar="URL", help=text)
        parser.addini(f"chaos_{name}", text)


@pytest.fixture
def chaos_stack() -> Iterator[ExitStack]:
    """What ends with the test; the fixtures below put their injectors on it."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def memory_leak(chaos_stack: ExitStack) -> Callable[..., MemoryLeakInjector]:
    """Start a ``MemoryLeakInjector``: ``memory_leak(rate="10MB/s", limit="1GiB", where="host")``."""

    def start(**options: Any) -> MemoryLeakInjector:
        from kvtide_chaos.memory import MemoryLeakInjector

        return chaos_stack.enter_context(MemoryLeakInjector(**options))

    return start


@pytest.fixture
def kv_block_leak(chaos_stack: ExitStack) -> Callable[..., KvBlockLeakInjector]:
    """Start a ``KvBlockLeakInjector``: ``kv_block_leak(directory, rate="2blocks/s", limit=50)``."""

    def start(directory: str | Path, **options: Any) -> KvBlockLeakInjector:
        from kvtide_chaos.kv_blocks import KvBlockLeakInjector

        return chaos_stack.enter_context(KvBlockLeakInjector(directory, **options))

    return start


@pytest.fixture
def freeze(chaos_stack: ExitStack) -> Callable[..., FreezeInjector]:
    """Start a ``FreezeInjector``: ``freeze(pid, duration="20s")``."""

    def start(pid: int, **options: Any) -> FreezeInjector:
        from kvtide_chaos.freeze import FreezeInjector

        return chaos_stack.enter_context(FreezeInjector(pid, **options))

    return start


@pytest.fixture
def hang_ups(chaos_stack: ExitStack) -> Callable[..., HangUpInjector]:
    """Start a ``HangUpInjector``: ``hang_ups(url, model, rate="5requests/s")``."""

    def start(url: str, model: str, **options: Any) -> HangUpInjector:
        from kvtide_chaos.hang_ups import HangUpInjector

        return chaos_stack.enter_context(HangUpInjector(url, model, **options))

    return start


@pytest.fixture
def alert_watch(request: pytest.FixtureRequest) -> AlertWatch:
    """The alerts of the Prometheus or Alertmanager that the options or the ini file name."""
    from kvtide_chaos.alerts import AlertWatch

    named = {
        name: request.config.getoption(f"chaos_{name}") or request.config.getini(f"chaos_{name}") or None
        for name in ("prometheus", "alertmanager")
    }
    if sum(value is not None for value in named.values()) != 1:
        raise pytest.UsageError("alert_watch asks one: give --chaos-prometheus URL or --chaos-alertmanager URL")
    return AlertWatch(**named)
