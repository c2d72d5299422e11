"""Old logs of nvidia-smi: its odd forms are read, leaks are seen, and what only looks like one is not."""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.replay.errors import ReplayError
from agent.replay.judge import judge, replay_file
from agent.replay.log import Series, read_log
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


# What is a leak, and what is not.


def noisy(seed: int, size: float) -> Callable[[float], float]:
    draw = random.Random(seed)
    return lambda _time: draw.gauss(0, size)


BUMPS = noisy(5, 0.003)


@pytest.mark.parametrize(
    "leak",
    [
        lambda t: 0.3 + 0.4 * t / (2 * HOUR),
        lambda t: 0.3 + 0.4 * t / (2 * HOUR) + BUMPS(t),
        lambda t: 0.2 + 0.35 * t / (2 * HOUR) + saw(t, 100, 0.3),
        lambda t: 0.2 + 0.05 * (t // 600),
        lambda t: 0.2 + 0.05 * (t // 600) + saw(t, 37, 0.1),
        lambda t: 0.1 + 0.8 * (t / (2 * HOUR)) ** 2,
    ],
    ids=["line", "noisy line", "under a saw-tooth", "staircase", "staircase under a saw-tooth", "accelerating"],
)
def test_a_leak_is_seen_and_forecast(leak: Callable[[float], float]) -> None:
    found = judge(series(leak))
    assert found.level == "bad", found.sentence
    assert found.exhaustion is not None
    assert found.exhaustion.condition.startswith("if ")


@pytest.mark.parametrize(
    "healthy",
    [
        lambda t: 0.9,
        lambda t: 0.9 + BUMPS(t) / 10,
        lambda t: min(0.9, 0.9 * t / 600),
        lambda t: 0.3 + 0.5 * (1 - math.exp(-t / 900)),
        lambda t: min(0.9, 0.09 * (t // 60)),
        lambda t: 0.45 + saw(t, 120, 0.4),
        lambda t: 0.3 + 0.05 * ((t // 600) % 4),
        lambda t: 0.5 + 0.3 * math.sin(t / 1500),
        lambda t: 0.3 if t < HOUR else 0.6,
        lambda t: 0.9 - 0.4 * t / (2 * HOUR),
        lambda t: 0.02,
    ],
    ids=[
        *("preallocated", "preallocated, noisy", "ramp to a plateau", "levelling off", "loaded in chunks", "saw-tooth"),
        *("stairs that come down", "a slow wave", "one step", "falling", "idle"),
    ],
)
def test_what_is_no_leak_stays_quiet(healthy: Callable[[float], float]) -> None:
    found = judge(series(healthy))
    assert found.level == "good", found.sentence
    assert found.exhaustion is None
    assert found.staircase is None


def test_a_slope_under_a_slow_saw_tooth_is_no_staircase() -> None:
    found = judge(series(lambda t: 0.2 + 0.5 * t / (2 * HOUR) + saw(t, 300, 0.25)))
    assert (found.level, found.staircase) == ("bad", None)
    assert "The floor grows" in found.sentence


def test_a_slow_rise_is_a_suspicion_in_a_short_log_and_a_leak_in_a_long_one() -> None:
    def slow(time: float) -> float:
        return 0.3 + 0.03 * time / HOUR

    assert judge(series(slow, seconds=2 * HOUR)).level == "note"
    assert judge(series(slow, seconds=10 * HOUR, every=10)).level == "bad"


def test_saw_tooth_and_floor_are_measured_and_the_textbook_numbers_told_apart() -> None:
    found = judge(series(lambda t: 0.45 + saw(t, 120, 0.4)))
    assert found.sawtooth is not None
    assert found.sawtooth.amplitude == pytest.approx(0.4, abs=0.01)
    assert found.sawtooth.floor == pytest.approx(0.45, abs=0.01)
    assert found.sawtooth.period_seconds == 120
    assert found.textbook == ("saw-tooth amplitude 39% > 30%", "saw-tooth floor 45% > 40%")
    assert judge(series(lambda t: 0.2 + saw(t, 120, 0.2))).textbook == ()


def test_a_saw_tooth_fakes_no_slope() -> None:
    found = judge(series(lambda t: 0.3 + saw(t, 700, 0.4)))
    assert found.growth is not None
    assert abs(found.growth.per_minute) < 1e-4


def test_growth_is_per_minute_of_the_device() -> None:
    found = judge(series(lambda t: 0.1 + 0.002 * t / 60))
    assert found.growth is not None
    assert found.growth.per_minute == pytest.approx(0.002, rel=0.01)
    assert found.growth.acceleration_per_minute2 == pytest.approx(0, abs=1e-6)


def test_the_forecast_is_when_the_peaks_reach_the_end() -> None:
    found = judge(series(lambda t: 0.1 + 0.002 * t / 60 + saw(t, 100, 0.4)))
    assert found.exhaustion is not None
    # The floor is at 0.34 after two hours, and the median peak half of its rise below the last one.
    assert found.exhaustion.low <= found.exhaustion.seconds
    assert 0.26 / 0.002 * 60 * 0.8 <= found.exhaustion.seconds <= 0.40 / 0.002 * 60


def test_what_runs_full_and_falls_again_and_again_is_told() -> None:
    found = judge(series(lambda t: 0.04 + saw(t, 1300, 0.95)))
    assert found.level == "bad"
    assert "restart or an out-of-memory kill" in found.sentence


def test_a_short_ramp_is_a_start_until_proven_otherwise() -> None:
    found = judge(series(lambda t: 0.1 + 0.8 * t / 300, seconds=300))
    assert found.level == "note"
    assert "too short" in found.sentence


def heap_series() -> list[tuple[str, list[float], float]]:
    found = []
    folder = DATA / "normal_series"
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        table = list(csv.reader(text.splitlines()))
        for column, name in enumerate(table[0][1:], start=1):
            values = [float(row[column]) for row in table[1:] if row[column] not in {"", "-1", "-1.0"}]
            if len(values) > 100:
                found.append((f"{path.name} {name}", values, 300.0 if path.suffix == ".csv" else 1.0))
    return found


@pytest.mark.skipif(not DATA.is_dir(), reason="the folder of recorded data is not here")
def test_recorded_heaps_and_noise_without_a_leak_never_alarm() -> None:
    tried = heap_series()
    assert len(tried) >= 10
    for name, values, every in tried:
        for room in (1.1, 1.25, 2.0):
            made = Series(gpu="0", total=room * max(values) / 2**20)
            for n, value in enumerate(values):
                made.add(n * every, value / 2**20)
            found = judge(made)
            assert found.level != "bad", (name, room, found.sentence)


# What nvidia-smi writes.


def test_units_no_units_and_no_header_give_the_same(tmp_path: Path) -> None:
    values = [40_000 + 10 * n for n in range(60)]
    with_units = one(log(tmp_path, [HEADER, *rows(values)]))
    bare = [row.replace(" MiB", "") for row in rows(values)]
    without_units = one(log(tmp_path, [HEADER, *bare]))
    columns = "timestamp,index,memory.used,memory.total"
    without_header = one(log(tmp_path, bare), columns=columns)
    assert with_units == without_units == without_header
    assert (with_units.samples, with_units.least_mib, with_units.most_mib) == (60, 40_000, 40_590)
    assert with_units.interval_seconds == pytest.approx(1.0)


def test_a_header_in_the_middle_is_no_row(tmp_path: Path) -> None:
    found = replay_file(log(tmp_path, [HEADER, *rows(range(30)), HEADER, *rows(range(30, 60))]))
    assert found.garbled == 0
    assert found.gpus[0].rows == 60


def test_gpus_in_turn_are_kept_apart(tmp_path: Path) -> None:
    lines = [HEADER]
    for n in range(50):
        lines += [f"{stamp(n + gpu / 1000)}, {gpu}, {1000 * (gpu + 1) + n} MiB, 81920 MiB" for gpu in range(4)]
    found = replay_file(log(tmp_path, lines)).gpus
    assert [gpu.gpu for gpu in found] == ["0", "1", "2", "3"]
    assert [gpu.least_mib for gpu in found] == [1000, 2000, 3000, 4000]
    assert all(gpu.gaps == 0 for gpu in found)


def test_gpus_in_turn_that_nothing_tells_apart_are_refused(tmp_path: Path) -> None:
    lines = ["timestamp, memory.used [MiB], memory.total [MiB]"]
    for n in range(50):
        lines += [f"{stamp(n + gpu / 1000)}, {1000 * (gpu + 1)} MiB, 81920 MiB" for gpu in range(2)]
    with pytest.raises(ReplayError, match="several GPUs"):
        replay_file(log(tmp_path, lines))
    alone = [lines[0], *(line for line in lines[1:] if " 1000 MiB" in line)]
    assert one(log(tmp_path, alone)).samples == 50


@pytest.mark.parametrize(
    "text",
    [
        *("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU is lost]", "[Insufficient Permissions]"),
        *("ERR!", "", "[GPU requires reset]"),
    ],
)
def test_cells_without_a_value_are_counted_and_never_zero(tmp_path: Path, text: str) -> None:
    lines = rows([50_000.0] * 60)
    lines[20] = lines[20].replace("50000 MiB", text)
    found = one(log(tmp_path, [HEADER, *lines]))
    assert (found.rows, found.samples, found.least_mib) == (60, 59, 50_000)
    assert found.missing == {text or "(empty)": 1}


def test_complaints_in_place_of_rows_are_told(tmp_path: Path) -> None:
    lost = (
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost. Reboot the system to recover this GPU"
    )
    found = replay_file(log(tmp_path, [HEADER, *rows([1.0] * 20), lost, lost]))
    assert found.failures == {lost: 2}
    assert found.garbled == 0
    only = replay_file(log(tmp_path, [lost]))
    assert (only.gpus, only.failures) == ((), {lost: 1})


def test_a_cut_last_line_is_left_out(tmp_path: Path) -> None:
    found = replay_file(log(tmp_path, [HEADER, *rows([5.0] * 20), stamp(20)]))
    assert (found.garbled, found.gpus[0].samples) == (1, 20)


def test_gaps_are_counted_and_not_filled(tmp_path: Path) -> None:
    lines = rows([50_000.0] * 200)
    found = one(log(tmp_path, [HEADER, *lines[:80], *lines[140:]]))
    assert (found.gaps, found.gap_seconds) == (1, pytest.approx(61))
    assert found.samples == 140
    assert None in found.plot


def test_a_clock_that_goes_back_an_hour_does_not_fold_the_log(tmp_path: Path) -> None:
    lines = [HEADER]
    for n in range(2 * HOUR // 10):
        time = 10 * n - (HOUR if n >= 360 else 0)
        lines.append(f"{stamp(time)}, 0, {TOTAL * (0.3 + 0.4 * n / 720):.0f} MiB, 81920 MiB")
    found = one(log(tmp_path, lines))
    assert (found.clock_jumps, found.gaps) == (1, 0)
    assert found.span_seconds == pytest.approx(7190, abs=10)
    assert found.level == "bad"
    assert found.growth is not None
    assert found.growth.per_minute == pytest.approx(0.4 / 120, rel=0.02)


def test_without_timestamps_the_interval_must_be_given(tmp_path: Path) -> None:
    lines = ["index, memory.used [MiB], memory.total [MiB]", *(f"0, {n} MiB, 81920 MiB" for n in range(100))]
    with pytest.raises(ReplayError, match="--interval"):
        replay_file(log(tmp_path, lines))
    found = one(log(tmp_path, lines), interval=5.0)
    assert (found.span_seconds, found.interval_seconds) == (495, 5)


def test_without_a_total_it_must_be_given_and_free_memory_will_do(tmp_path: Path) -> None:
    lines = ["timestamp, memory.used [MiB]", *(f"{stamp(n)}, {n} MiB" for n in range(30))]
    with pytest.raises(ReplayError, match="--total-mib"):
        replay_file(log(tmp_path, lines))
    assert one(log(tmp_path, lines), total_mib=1000.0).most_mib == 29
    lines = [
        "timestamp, memory.free [MiB], memory.total [MiB]",
        *(f"{stamp(n)}, {900 - n} MiB, 1000 MiB" for n in range(30)),
    ]
    assert one(log(tmp_path, lines)).most_mib == 129


def test_what_is_missing_is_said_with_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match=r"no memory\.used .*utilization\.gpu"):
        replay_file(log(tmp_path, ["timestamp, utilization.gpu [%]", f"{stamp(0)}, 7 %"]))
    with pytest.raises(ReplayError, match="--columns"):
        replay_file(log(tmp_path, rows([1.0])))
    with pytest.raises(ReplayError, match="no row"):
        replay_file(log(tmp_path, [HEADER]))
    with pytest.raises(ReplayError, match="no row"):
        replay_file(log(tmp_path, []))


def test_files_of_powershell_and_gzip_are_read(tmp_path: Path) -> None:
    text = "\n".join([HEADER, *rows([7.0] * 20)])
    for name, data in (
        ("wide", text.encode("utf-16")),
        ("packed", gzip.compress(text.encode())),
        ("bom", b"\xef\xbb\xbf" + text.encode()),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert one(path).samples == 20
    (tmp_path / "cut").write_bytes(gzip.compress(text.encode())[:-9])
    (tmp_path / "binary").write_bytes(bytes(range(256)) * 9)
    for name in ("cut", "binary", "absent", "."):
        with pytest.raises(ReplayError):
            replay_file(tmp_path / name)


@pytest.mark.skipif(not DATA.is_dir(), reason="the folder of recorded data is not here")
def test_recorded_odd_outputs_are_read(tmp_path: Path) -> None:
    text = (DATA / "nvidia_smi" / "odd_query_outputs.txt").read_text()
    parts = [part.splitlines() for part in text.split("## ")[1:]]
    by_name = {part[0]: part[1:] for part in parts}
    unified = by_name["GB10 1 Hz (sonar#460)"]
    found = one(log(tmp_path, unified))
    assert (found.samples, found.rows, found.missing, found.least_mib) == (0, 5, {"[N/A]": 5}, None)
    assert "nothing can be judged" in found.sentence
    still = by_name["GB10 (nvitop#208, driver 580.173.02)"]
    assert one(log(tmp_path, still), interval=1.0).missing == {"[N/A]": 1}
    jetson = by_name["Jetson Orin (vllm-cli#11)"]
    columns = "index,name,memory.total,memory.used,memory.free,temperature.gpu,power.draw"
    orin = one(log(tmp_path, jetson), columns=columns, interval=1.0)
    assert (orin.name, orin.samples) == ("Orin (nvgpu)", 0)
    wsl = one(
        log(tmp_path, by_name["WSL2 (nvtop#432): per-GPU fine, per-process not"][:1]),
        columns="name,memory.total,memory.used",
        interval=1.0,
    )
    assert (wsl.total_mib, wsl.most_mib) == (16376, 14360)
    (lost,) = [lines for name, lines in by_name.items() if name.startswith("Lost GPU")]
    assert len(replay_file(log(tmp_path, lost)).failures) == 3


# The command.


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(KVTIDE), "replay", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def test_the_command_shows_the_verdict_in_100_columns(tmp_path: Path) -> None:
    path = log(tmp_path, [HEADER, *rows(TOTAL * (0.2 + 0.35 * n / 7200 + saw(n, 100, 0.3)) for n in range(7200))])
    result = run(path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "That is a leak's shape." in result.stdout.replace("│", "").replace("\n", " ").replace("  ", " ")
    assert max(map(len, result.stdout.splitlines())) <= 100
    answer = json.loads(run(path, "--json").stdout)
    assert answer["gpus"][0]["level"] == "bad"
    assert answer["gpus"][0]["growth"]["per_minute"] == pytest.approx(0.35 / 120, rel=0.05)


def test_errors_of_the_command_are_one_line(tmp_path: Path) -> None:
    result = run(log(tmp_path, ["hello"]))
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert run().returncode == 2
    assert run(log(tmp_path, [HEADER]), "--interval", "0").returncode == 2


def test_names_in_a_log_are_text(tmp_path: Path) -> None:
    header = "timestamp, name, uuid, memory.used [MiB], memory.total [MiB]"
    lines = [header, *(f"{stamp(n)}, [bold]X[/nope], [red]u, 5 MiB, 10 MiB" for n in range(20))]
    result = run(log(tmp_path, lines))
    assert result.returncode == 0
    assert "[bold]X[/nope]" in result.stdout


def test_memory_is_bounded_by_samples(tmp_path: Path) -> None:
    made = read_log(log(tmp_path, [HEADER, *rows([3.0] * 5000)])).series["0"]
    assert made.times.itemsize * len(made.times) == 40_000
