"""What `kvtide replay` shows: a chart that fits, holes only where there was nothing, and numbers that say something."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from agent.faces.terminal import LEAST_COLUMNS, Terminal
from agent.replay.errors import ReplayError
from agent.replay.judge import replay_file
from agent.replay.plot import CELLS
from agent.replay.result import Exhaustion, GpuResult, Replay
from agent.replay.text import HEIGHT, render
from tests.unit.replays import HEADER, log, one, rows, stamp


def shown(replay: Replay, width: int = LEAST_COLUMNS) -> str:
    console = Terminal(file=io.StringIO(), width=width, color_system=None)
    console.print(render(replay))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def every_minute(tmp_path: Path, used: Iterable[tuple[int, float]]) -> Replay:
    return replay_file(
        log(tmp_path, [HEADER, *(f"{stamp(60 * n)}, 0, {value:.0f} MiB, 81920 MiB" for n, value in used)])
    )


def chart(text: str) -> list[str]:
    """Return the lines of the chart, without the frame and the scale."""
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("│ 100% "))
    return [line[7:-2] for line in lines[first : first + HEIGHT]]


@pytest.mark.parametrize("width", [80, 81, 100])
def test_the_chart_fits_the_narrowest_terminal(tmp_path: Path, width: int) -> None:
    text = shown(replay_file(log(tmp_path, [HEADER, *rows([81_920.0] * 500)])), width)
    assert {len(line) for line in text.splitlines()[1:]} == {width}
    assert [line.rstrip() for line in chart(text)] == ["█" * CELLS] * HEIGHT
    assert "no sample" not in text


def test_a_short_log_has_no_holes_and_a_gap_in_time_is_one(tmp_path: Path) -> None:
    whole = shown(every_minute(tmp_path, ((n, 40_000) for n in range(12))))
    assert chart(whole)[-1] == "█" * CELLS
    assert "no sample" not in whole
    torn = shown(every_minute(tmp_path, ((n, 40_000) for n in range(40) if not 10 <= n < 30)))
    bottom = chart(torn)[-1]
    assert 30 <= bottom.count("·") <= 40
    assert re.fullmatch("█+·+█+", bottom)
    assert "· no sample" in torn


def test_a_cell_without_a_sample_of_its_own_shows_the_one_before(tmp_path: Path) -> None:
    plot = replay_file(log(tmp_path, [HEADER, *rows([8192.0, 16_384.0, 24_576.0])])).gpus[0].plot
    assert len(plot) == CELLS
    assert plot == tuple(sorted(plot))
    assert set(plot) == {0.1, 0.2, 0.3}
    assert plot.count(0.1) == pytest.approx(CELLS / 2, abs=1)
    assert len(set(one(log(tmp_path, [HEADER, *rows([8192.0])])).plot)) == 2  # one sample: one cell


def leaking(tmp_path: Path) -> GpuResult:
    (gpu,) = every_minute(tmp_path, ((n, 20_000 + 1500 * n) for n in range(40))).gpus
    return gpu


def words(gpu: GpuResult) -> str:
    text = shown(Replay(file="x", gpus=(gpu,), garbled=0, failures={}))
    return " ".join(text.replace("│", " ").split())


def test_an_interval_is_shown_only_where_it_says_more(tmp_path: Path) -> None:
    exact = words(leaking(tmp_path))
    rate = "at this rate (the slower of the whole log and its last half), unless restarted."
    assert f"Full in about 2 min {rate}" in exact
    assert "floor +1.831%/min, last half" in exact
    assert "acceleration" not in exact
    wobbling = ((n, 20_000 + 900 * n + 3 * n * n + 2500 * (n * 7 % 5)) for n in range(40))
    rough = words(every_minute(tmp_path, wobbling).gpus[0])
    assert "acceleration +" in rough
    assert "/min (+" in rough
    assert " min (" in rough.partition("Full in about ")[2][:12]


def test_an_end_that_may_never_come_is_told(tmp_path: Path) -> None:
    left = Exhaustion(seconds=600, low=500, high=None, condition="at this rate, unless restarted")
    assert "Full in about 10 min (8 min to never) at this rate" in words(
        msgspec.structs.replace(leaking(tmp_path), exhaustion=left)
    )


@pytest.mark.parametrize(
    "lines",
    [
        ["Mon Nov 30 03:15:52 2026       ", "+-----+"],
        ["+-----------------------------------------+", "| NVIDIA-SMI 550.54 |"],
        ["| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14 |"],
    ],
    ids=["date", "frame", "name"],
)
def test_the_table_for_people_is_told_from_its_csv(tmp_path: Path, lines: list[str]) -> None:
    with pytest.raises(ReplayError, match=r"table, not its CSV; .*--format=csv -l 10$"):
        replay_file(log(tmp_path, lines))


def test_a_complaint_that_names_nvidia_smi_is_no_table(tmp_path: Path) -> None:
    found = replay_file(log(tmp_path, ["NVIDIA-SMI has failed because it couldn't communicate with the driver."]))
    assert len(found.failures) == 1


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_is_not_text(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "dump.pickle"
    for data in (pickle.dumps({"segments": list(range(9))}, protocol), b"\x80\x04\n0, 1\n"):
        path.write_bytes(data)
        with pytest.raises(ReplayError, match="is not text"):
            replay_file(path)
