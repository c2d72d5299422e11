"""Files that were made to harm, or by another tool: `kvtide snapshot` and `kvtide replay` refuse them in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.replay.errors import ReplayError
from agent.replay.judge import replay_file
from agent.replay.log import MORE_THAN_ALL
from agent.snapshot.analyse import analyse
from agent.snapshot.errors import SnapshotError
from agent.snapshot.parse import parse
from tests.bed.snapshots import MIB, AllocatorBed, write

KVTIDE = Path(sys.executable).parent / "kvtide"
SIZE = 1 << 24
STEERS = "\x1b[31m\x1b]0;t\x07\x9b2J\u202e\ud800<script>alert(1)</script>"


def run(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [str(KVTIDE), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, env={**os.environ, "COLUMNS": "100"})


def snapshot(name: str = "f", filename: str = "/a/b.py", device: int = 0) -> dict[str, Any]:
    bed = AllocatorBed(device)
    bed.alloc(30 * MIB, [{"name": name, "filename": filename, "line": 3}])
    return bed.snapshot()


# -- snapshot -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_names_in_a_snapshot_steer_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    raw = snapshot(STEERS, f"/x/{STEERS}.py")
    raw["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": STEERS}
    raw["device_traces"][0].append({"action": STEERS, "size": 1})
    page = tmp_path / "page.html"
    done = run("snapshot", write(raw, tmp_path / "s.pickle"), "--html", page, *options)
    assert (done.returncode, done.stderr) == (0, b"")
    for text in (done.stdout.decode(), page.read_text()):
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "<script>alert" not in page.read_text()


def test_names_in_an_error_steer_nothing(tmp_path: Path) -> None:
    done = run("snapshot", write({STEERS.replace("\ud800", ""): 1}, tmp_path / "s.pickle"))
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.isprintable()


def test_names_without_end_are_cut_in_the_middle() -> None:
    report = analyse(parse(snapshot("n" * 1_000_000, "/p" * 500_000 + "/end.py"), SIZE), "f")
    site = report.devices[0].live[0]
    assert len(site.label) < 1000
    assert site.filename.endswith("/end.py")


@pytest.mark.parametrize(("devices", "fine"), [(256, True), (257, False), (10_000, False)])
def test_more_devices_than_any_host_has_are_refused(devices: int, fine: bool) -> None:
    traces = {"segments": [], "device_traces": [[] for _ in range(devices)]}
    of_last = snapshot(device=0)
    of_last["segments"][0]["device"] = devices - 1
    for raw in (traces, of_last):
        if fine:
            parse(raw, SIZE)
        else:
            with pytest.raises(SnapshotError, match="256"):
                parse(raw, SIZE)


# -- replay ---------------------------------------------------------------------------------------------

HEADER = "timestamp, index, name, memory.used [MiB], memory.total [MiB]"


def rows(used: str = "10000 MiB", when: str = "2026/01/01", count: int = 100) -> list[str]:
    return [f"{when} 00:{n // 60:02d}:{n % 60:02d}.000, 0, H100, {used}, 80000 MiB" for n in range(count)]


def written(tmp_path: Path, *lines: str, end: str = "\n") -> Path:
    path = tmp_path / "log.csv"
    path.write_bytes(end.join((*lines, "")).encode())
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ReplayError) as caught:
        replay_file(path, **options)
    return str(caught.value)


@pytest.mark.parametrize(("sign", "name"), [(";", "semicolons"), ("\t", "tabs")])
def test_another_separator_is_named(tmp_path: Path, sign: str, name: str) -> None:
    path = written(tmp_path, *(line.replace(", ", sign) for line in (HEADER, *rows())))
    assert f"columns are separated by {name}" in refusal(path)


def test_a_comma_in_a_number_shifts_no_cell_into_another_column(tmp_path: Path) -> None:
    text = refusal(written(tmp_path, HEADER, *rows("10000,5 MiB")))
    assert "100 lines don't have the 5 columns" in text
    some = replay_file(written(tmp_path, HEADER, *rows(), *rows("10000,5 MiB", "2026/01/02", 7)))
    assert (some.garbled, some.gpus[0].samples, some.gpus[0].most_mib) == (7, 100, 10000.0)


def test_quotes_and_line_ends_of_a_spreadsheet_change_nothing(tmp_path: Path) -> None:
    plain = replay_file(written(tmp_path, HEADER, *rows())).gpus
    quoted = ['"{}"'.format(line.replace(", ", '","')) for line in (HEADER, *rows())]
    assert replay_file(written(tmp_path, *quoted, end="\r\n")).gpus == plain


@pytest.mark.parametrize("used", ["80001 MiB", "99999999999999 MiB", "9" * 400 + " MiB"])
def test_more_than_the_device_has_is_no_value(tmp_path: Path, used: str) -> None:
    found = replay_file(written(tmp_path, HEADER, *rows(), *rows(used, "2026/01/02", 5))).gpus[0]
    assert (found.samples, sum(found.missing.values()), found.most_mib) == (100, 5, 10000.0)
    exactly = replay_file(written(tmp_path, HEADER, *rows("80000 MiB"))).gpus[0]
    assert MORE_THAN_ALL not in exactly.missing


def test_a_total_that_is_less_than_what_is_used_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, HEADER, *rows())
    assert "--total-mib 80 is less than the 10000 MiB in use" in refusal(path, total_mib=80.0)
    assert replay_file(path, total_mib=10000.0).gpus[0].total_mib == 10000.0


def test_times_that_cannot_be_read_are_what_is_said_to_be_missing(tmp_path: Path) -> None:
    (unread,) = replay_file(written(tmp_path, HEADER, *rows(when="01.01.2026"))).gpus
    assert unread.sentence.startswith("None of its times can be read")
    (unsaid,) = replay_file(written(tmp_path, HEADER, *rows("[N/A]"))).gpus
    assert unsaid.sentence.startswith("No value of used memory")
