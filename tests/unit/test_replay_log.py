"""Old logs of nvidia-smi: its odd forms are read, and the command tells what was found."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest

from agent.replay.errors import ReplayError
from agent.replay.judge import replay_file
from agent.replay.log import read_log
from tests.unit.replays import DATA, HEADER, HOUR, KVTIDE, TOTAL, log, one, rows, saw, stamp

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
