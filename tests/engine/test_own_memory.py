"""An engine core tells its memory from its link's side thread: each ten seconds, and to whoever connects."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from engine_hooks import wire
from engine_hooks.core.reporter import EngineReporter
from engine_hooks.settings import Settings
from tests.bed.scheduler import BareEngine, make_scheduler

MIB = 1 << 20


def test_the_side_thread_tells_it_now_and_then(tmp_path: Path) -> None:
    scheduler = make_scheduler()
    engine = BareEngine(scheduler=scheduler, vllm_config=scheduler.vllm_config)
    settings = Settings.from_environment({"KVTIDE_SOCKET": str(tmp_path / "nobody.sock")})
    reporter = EngineReporter(engine, settings, None)  # not started: it has no thread that ticks beside us
    assert reporter._tick() is None, "nobody is there"
    reporter._link = SimpleNamespace(up=True, hurry=False)
    told = reporter._tick()
    assert isinstance(told, wire.Heartbeat)
    assert told.memory is not None
    assert told.memory.resident_bytes is not None
    assert told.memory.resident_bytes > 50 * MIB, "torch alone is more"
    assert told.silent_seconds < 60.0
    again = reporter._tick()
    assert again is None or again.memory is None
    reporter._request_report()  # an agent has connected
    told = reporter._tick()
    assert told is not None
    assert told.memory is not None
