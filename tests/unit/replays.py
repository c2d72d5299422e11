"""Logs of nvidia-smi that are made up, and the replay of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from agent.replay.judge import replay_file
from agent.replay.log import Series
from agent.replay.result import GpuResult

KVTIDE = Path(sys.executable).parent / "kvtide"
DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
TOTAL = 81920.0
HOUR = 3600
START = datetime(2024, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
HEADER = "timestamp, index, memory.used [MiB], memory.total [MiB]"


def series(ratio: Callable[[float], float], seconds: int = 2 * HOUR, every: float = 2.0) -> Series:
    made = Series(gpu="0", total=TOTAL)
    for n in range(int(seconds / every)):
        made.add(n * every, TOTAL * ratio(n * every))
    return made


def saw(time: float, period: float, height: float) -> float:
    return height * (time % period) / period


def stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]


def log(tmp_path: Path, lines: Iterable[str]) -> Path:
    path = tmp_path / "gpu.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def rows(values: Iterable[float], gpu: str = "0") -> list[str]:
    return [f"{stamp(n)}, {gpu}, {value:.0f} MiB, 81920 MiB" for n, value in enumerate(values)]


def one(path: Path, **options: object) -> GpuResult:
    (gpu,) = replay_file(path, **options).gpus  # type: ignore[arg-type]
    return gpu
