"""Each fault does what it says, ends by itself, and is taken back however its block ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from kvtide_chaos import (
    FreezeInjector,
    HangUpInjector,
    InjectorError,
    KvBlockLeakInjector,
    MemoryLeakInjector,
    kv_blocks,
)
from kvtide_chaos.injector import Injector

from tests.bed import net

MIB = 2**20
PATIENCE_SECONDS = 30.0


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.02)


@pytest.fixture
def sleeper() -> Iterator[psutil.Popen]:
    process = psutil.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()


def test_memory_is_resident_up_to_the_limit_and_given_back() -> None:
    own = psutil.Process()
    before = own.memory_info().rss
    with MemoryLeakInjector("400MiB/s", limit=40 * MIB) as leak:
        until(lambda: leak.leaked_bytes == 40 * MIB)
        assert own.memory_info().rss - before >= 39 * MIB
    assert leak.leaked_bytes == 0
    assert own.memory_info().rss - before < 10 * MIB


def test_memory_ends_by_itself() -> None:
    leak = MemoryLeakInjector("100MiB/s", limit=5 * MIB, duration="300ms").start()
    leak.wait()
    assert not leak.running
    assert leak.leaked_bytes == 0
    leak.stop()


def test_an_unknown_device_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeError, match="torch, which is not installed"), MemoryLeakInjector(where="cuda:0"):
        pytest.fail("it started")


def test_a_process_stands_still_and_goes_on(sleeper: psutil.Popen) -> None:
    with FreezeInjector(sleeper.pid):
        until(lambda: sleeper.status() == psutil.STATUS_STOPPED)
    until(lambda: sleeper.status() != psutil.STATUS_STOPPED)


def test_a_killed_injector_leaves_nobody_frozen(sleeper: psutil.Popen) -> None:
    program = (
        f"import time; from kvtide_chaos import FreezeInjector; FreezeInjector({sleeper.pid}).start(); time.sleep(60)"
    )
    freezer = subprocess.Popen([sys.executable, "-c", program])
    try:
        until(lambda: sleeper.status() == psutil.STATUS_STOPPED)
    finally:
        freezer.kill()
        freezer.wait()
    until(lambda: sleeper.status() != psutil.STATUS_STOPPED)


@pytest.mark.parametrize("pid", [1, 0, -5, psutil.Process().pid])
def test_who_is_never_frozen(pid: int) -> None:
    with pytest.raises(ValueError, match="can't be frozen"):
        FreezeInjector(pid)


def test_an_order_for_blocks_ends_with_the_block(tmp_path: Path) -> None:
    with KvBlockLeakInjector(tmp_path, "2blocks/s", limit=7) as leak:
        assert '"per_second": 2.0' in (tmp_path / "arm").read_text()
        assert leak.leaked_blocks == 0
    assert not (tmp_path / "arm").exists()


def test_a_failed_plugin_fails_the_test(tmp_path: Path) -> None:
    leak = KvBlockLeakInjector(tmp_path).start()
    (tmp_path / "error.json").write_text('{"error": "no such attribute"}')
    leak.wait()
    with pytest.raises(InjectorError, match="no such attribute"):
        leak.stop()


def test_a_directory_that_no_engine_can_have(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="KVTIDE_CHAOS_DIR"):
        KvBlockLeakInjector(tmp_path / "none").start()


@pytest.mark.parametrize(("least", "most"), [(0, 1), (3, 2), (-1, -1)])
def test_how_many_blocks_make_a_leak(tmp_path: Path, least: int, most: int) -> None:
    with pytest.raises(ValueError, match="minimum <= maximum"):
        kv_blocks.arm(tmp_path, least, most)


def test_a_server_that_is_not_there_is_counted() -> None:
    with HangUpInjector(f"http://127.0.0.1:{net.free_port()}", "tiny", "50requests/s") as clients:
        until(lambda: clients.failed > 0)
    assert clients.hung_up == 0


class Failing(Injector):
    undone = 0

    def _begin(self) -> None:
        pass

    def _step(self, elapsed: float) -> None:
        raise MemoryError("no more")

    def _take_back(self) -> None:
        self.undone += 1


def test_a_failed_injector_takes_back_and_says_so() -> None:
    failing = Failing()
    with pytest.raises(InjectorError, match="no more"), failing:
        failing.wait()
    assert failing.undone == 1
    failing.stop()  # told once


def test_the_tests_own_error_comes_first() -> None:
    failing = Failing()
    with pytest.raises(KeyError) as caught, failing:  # noqa: PT012 - what the block raises is what is asked
        failing.wait()
        raise KeyError("mine")
    assert any("no more" in note for note in caught.value.__notes__)
