"""The chaos kit against a real engine: a team's own alert fires for leaked blocks, and load is judged by its marks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvtide_chaos import AlertWatch, KvBlockLeakInjector

from tests.bed.load import LoadPlan, run_load
from tests.bed.prometheus import PrometheusServer
from tests.e2e.conftest import Rig


@pytest.fixture
def prometheus(rig: Rig, tmp_path: Path) -> Iterator[PrometheusServer]:
    before = rig.agent.pool()["orphaned"]
    rule = {"alert": "OurBlocksLeak", "expr": f"kvtide_kv_blocks_orphaned > {before}"}
    rules = {"groups": [{"name": "ours", "interval": "1s", "rules": [rule]}]}
    (tmp_path / "rules.yml").write_text(json.dumps(rules))  # JSON is YAML
    target = rig.agent.url.removeprefix("http://")
    with PrometheusServer(tmp_path, targets=[target], interval=1.0, more={"rule_files": ["rules.yml"]}) as server:
        server.wait_scraped()
        yield server


async def test_a_teams_own_alert_fires_for_leaked_blocks_and_not_for_load(
    rig: Rig, prometheus: PrometheusServer
) -> None:
    watch = AlertWatch(prometheus=prometheus.url)
    await run_load(rig.engine.url, LoadPlan(requests=20, seconds=120))
    watch.expect_quiet("OurBlocksLeak", lasting="2s")
    with KvBlockLeakInjector(rig.leaks, "50blocks/s", limit=3) as leak:
        await run_load(rig.engine.url, LoadPlan(requests=40, seconds=120))
        alert = watch.expect("OurBlocksLeak", within="120s")
    assert leak.leaked_blocks == 3
    assert alert.labels["engine"]


def load(rig: Rig, *more: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("kvtide-chaos")), "load", rig.engine.url, "--kvtide", rig.agent.url]
    command += ["--users=2", "--for=5s", "--prompt-words=40", "--answer-tokens=8", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_load_that_meets_its_marks(rig: Rig) -> None:
    result = load(rig, "--p99=60s")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "pass  no OOM: 0 failed allocations, 0 is wanted" in result.stdout


def test_load_that_misses_a_mark(rig: Rig) -> None:
    result = load(rig, "--p99=1ms")
    assert result.returncode == 1
    assert "FAIL  P99" in result.stdout
    assert "pass  errors" in result.stdout
