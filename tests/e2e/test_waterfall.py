"""The waterfall end to end: a real agent over the unmodified NVML binding, and processes with the probe in them.

The driver's library is scripted and torch is :class:`tests.bed.fake_torch.FakeTorch`: what a GPU would add is the
driver's own bookkeeping. 1 GiB is added in turn to what somebody else holds, to a private pool, to torch's memory and
beside torch, and must be found there and nowhere else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.bed.agent import KVTIDE, ROOT, AgentProcess
from tests.bed.nvml import LIBRARY, SCRIPT_VARIABLE, Gpu, Memory, Process, Script, build

GIB, MIB = 1 << 30, 1 << 20
TOTAL, DRIVER = 80 * GIB, 600 * MIB
REST = 40 * MIB  # handed out, booked on nobody
CONTEXT = 500 * MIB
FOREIGN = 300_000  # a pid that is not ours
PATIENCE = 180.0
CHANGE = 1.0  # seconds between two readings of the driver; a process speaks as often
WALK_READINGS = 7  # in which there is a walk over the segments

CHILD = """
import json, sys
from tests.bed.fake_torch import FakeTorch
from tests.bed.snapshots import AllocatorBed
bed = AllocatorBed(capacity=60 << 30)
torch = sys.modules["torch"] = FakeTorch(bed)
from engine_hooks.torch import attach
handle = attach(name=sys.argv[1])
for line in sys.stdin:
    order = json.loads(line)
    torch.empty(order["size"], pool=tuple(order["pool"]))
    print(bed.reserved, flush=True)
"""


class Trainer:
    """A process that uses torch; ``beside``: what it holds beside torch, by the driver."""

    def __init__(self, name: str, agent: AgentProcess, log: Path) -> None:
        self.name, self.reserved, self.beside = name, 0, CONTEXT
        env = {key: value for key, value in os.environ.items() if not key.startswith("KVTIDE")}
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", CHILD, name],
                cwd=ROOT,
                env=env | agent.engine_env(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.pid = self._process.pid

    def allocate(self, size: int, pool: tuple[int, int] = (0, 0)) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"size": size, "pool": pool}) + "\n")
        self._process.stdin.flush()
        self.reserved = int(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


class Bench:
    """One GPU with two trainers and somebody else on it, and the agent that looks at it."""

    def __init__(self, agent: AgentProcess, script: Path, first: Trainer, second: Trainer) -> None:
        self.agent, self.first, self.foreign = agent, first, 2 * GIB
        self._script, self._trainers = script, (first, second)

    def book(self) -> None:
        """Let the driver say what is so now."""
        processes = [Process(one.pid, one.reserved + one.beside) for one in self._trainers]
        processes.append(Process(FOREIGN, self.foreign))
        used = REST + sum(one.used or 0 for one in processes)
        memory = Memory(total=TOTAL, used=used, reserved=DRIVER)
        Script(gpus=(Gpu("GPU-0000-0", memory=memory, processes=tuple(processes)),)).write(self._script)

    def read(self) -> dict[str, int]:
        """Return the parts, called by name and owner, and ``unattributed``; empty before there is any."""
        falls = self.agent.state()["waterfalls"]
        if not falls:
            return {}
        (fall,) = falls
        parts = {f"{part['part']} {part['owner']}".strip(): part["bytes"] for part in fall["parts"]}
        assert sum(parts.values()) + fall["unattributed_bytes"] == fall["total_bytes"] == TOTAL
        return parts | {"unattributed": fall["unattributed_bytes"]}

    def settled(self) -> dict[str, int]:
        """Wait until everything that is so has been heard of; return the parts."""
        self.agent.wait(lambda: self._told(self.read()), PATIENCE)
        return self.read()

    def _told(self, parts: dict[str, int]) -> bool:
        for one in self._trainers:
            torch = sum(parts.get(f"{name} torch/{one.name}", -GIB) for name in ("torch_active", "torch_inactive"))
            if torch + parts.get(f"graphs torch/{one.name}", -GIB) != one.reserved:
                return False
            if abs(parts.get(f"context torch/{one.name}", -GIB) - one.beside) > 2 * MIB:
                return False
        return parts["other_processes"] == self.foreign

    def moves(self, before: dict[str, int], part: str | None) -> None:
        """Wait until ``part`` has moved by 1 GiB and free with it; then nothing else has."""

        def moved() -> dict[str, int]:
            """Empty while a process is silent, as one may be for seconds on a busy machine: then its parts are gone."""
            now = self.read()
            return {name: now[name] - before[name] for name in now} if now.keys() == before.keys() else {}

        if part is not None:
            self.agent.wait(lambda: abs(moved()[part] - GIB) <= GIB // 100 and moved()["free"] <= -GIB, PATIENCE)
            # What the driver says and what the process says are a second apart; a walk is five.
            self.agent.wait(
                lambda: (
                    (now := moved())
                    and all(abs(by) < 16 * MIB for name, by in now.items() if name not in (part, "free"))
                ),
                PATIENCE,
            )
        own = {part, "free"} if part is not None else set()
        deadline, looks = time.monotonic() + PATIENCE, WALK_READINGS if part is None else 2
        while looks:
            time.sleep(CHANGE)
            if not (now := moved()):
                assert time.monotonic() < deadline, "a process says nothing any more"
                continue
            looks -= 1
            assert {name for name, by in now.items() if abs(by) >= 16 * MIB} == own, now
            assert part is None or abs(now[part] - GIB) <= GIB // 100


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("waterfall")
    script, config = path / "script", path / "agent.yaml"
    Script(gpus=(Gpu("GPU-0000-0"),)).write(script)
    library = build(path) / LIBRARY
    config.write_text(f"sources: {{device: {{library: {library}, call_timeout_seconds: 5.0}}}}\n")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(SCRIPT_VARIABLE, str(script))
        agent = AgentProcess(folder / "waterfall", args=("--config", str(config)))
    with agent, Trainer("a", agent, path / "a.log") as first, Trainer("b", agent, path / "b.log") as second:
        for one in (first, second):
            one.allocate(3 * GIB)
            one.allocate(64 * MIB, pool=(0, 1))
        bench = Bench(agent, script, first, second)
        bench.book()
        bench.settled()
        yield bench


def test_nothing_added_nothing_moves(bench: Bench) -> None:
    before = bench.settled()
    assert before["unattributed"] == REST
    assert before["driver"] == DRIVER
    assert before["graphs torch/a"] == 64 * MIB
    bench.moves(before, None)


def test_what_somebody_else_takes(bench: Bench) -> None:
    before = bench.settled()
    bench.foreign += GIB
    bench.book()
    bench.moves(before, "other_processes")


def test_a_private_pool_as_cuda_graphs_have(bench: Bench) -> None:
    before = bench.settled()
    bench.first.allocate(GIB, pool=(0, 2))
    bench.book()
    bench.moves(before, "graphs torch/a")


def test_torchs_own_memory(bench: Bench) -> None:
    before = bench.settled()
    bench.first.allocate(GIB)
    bench.book()
    bench.moves(before, "torch_active torch/a")


def test_what_a_library_takes_beside_torch(bench: Bench) -> None:
    before = bench.settled()
    bench.first.beside += GIB
    bench.book()
    bench.moves(before, "context torch/a")


def test_what_a_person_sees(bench: Bench) -> None:
    bench.settled()
    command = [str(KVTIDE), "status", "--waterfall", "--url", bench.agent.url]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    assert "GPU 0" in text
    assert "unattributed" in text
    assert "torch/a" in text
    answer: dict[str, Any] = json.loads(
        subprocess.run([*command, "--json"], capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    )
    assert answer["reason"] == ""
    assert [fall["gpu"] for fall in answer["waterfalls"]] == ["0"]
    assert answer["waterfalls"][0]["unattributed_bytes"] == REST
    metrics = bench.agent.metrics()
    assert metrics["kvtide_waterfall_bytes"] == TOTAL
