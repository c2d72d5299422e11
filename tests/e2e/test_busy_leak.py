"""One leaked block under 256 running requests that share a long prefix: seen, named and said.

The engine is vLLM's own EngineCoreProc with its busy loop, scheduler and pool; only the model is made up.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kvtide_chaos.kv_blocks import arm, leak_env, wait_planted

from tests.bed.agent import PATIENCE_SECONDS, AgentProcess
from tests.bed.engine import ROOT

PYTHON = ROOT / ".venv" / "engine" / "bin" / "python"


@contextmanager
def busy_engine(log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run an engine with 256 requests until the block ends; ten minutes at most."""
    command = [PYTHON, "-m", "tests.bed.core_proc", "--running", "256", "--prefix", "1024", "--max-tokens", "600"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*map(str, command), "--blocks", "60000", "--seconds", "600", "--step-ms", "10"],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(log.parent), **env},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("READY"), log.read_text()[-2000:]
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_one_leaked_block_among_256_running_requests() -> None:
    with tempfile.TemporaryDirectory(prefix="kvtide-") as name:
        place = Path(name)
        leaks = place / "leak"
        with (
            AgentProcess(place) as agent,
            busy_engine(place / "engine.log", {**agent.engine_env(), **leak_env(leaks)}) as engine,
        ):
            agent.wait_live()
            agent.wait(lambda: agent.engine()["running"] == 256)
            before = agent.engine()
            assert before["pid"] == engine.pid
            assert (before["pool"]["orphaned"], before["pool"]["over_freed"]) == (0, 0)
            arm(leaks, 1, 1)
            planted = wait_planted(leaks, PATIENCE_SECONDS)
            assert planted.n == 1
            agent.wait(lambda: agent.metrics().get("kvtide_kv_blocks_orphaned") == 1)
            assert agent.engine()["running"] > 200, "the leak must be seen while the engine is busy"
            agent.wait(lambda: agent.pool()["exact"] and agent.pool()["orphaned"] == 1)
            agent.wait(lambda: [v["phase"] for v in agent.verdicts("kv_orphan")] == ["confirmed"])
            assert agent.verdicts("kv_orphan")[0]["sentence"].startswith("1 KV block is held by no request")
            assert agent.pool()["over_freed"] == 0
            assert agent.engine()["hooks"]["errors"] == {}
