"""What a person gets: the command, its exit codes, the terminal, JSON, and a page that fetches and runs nothing."""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from agent.snapshot.analyse import analyse
from agent.snapshot.flame import MOST, flame
from agent.snapshot.model import Snapshot
from agent.snapshot.page import page
from agent.snapshot.parse import parse
from agent.snapshot.segment_map import segment_map
from agent.snapshot.text import SUMS_BAR, numbers
from tests.bed.snapshots import GIB, MIB, AllocatorBed, server_like, stacks, write

KVTIDE = Path(sys.executable).parent / "kvtide"
SIZE = 1 << 30
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(1)>'&"


def run(*arguments: object, columns: int = 100) -> subprocess.CompletedProcess[str]:
    command = [str(KVTIDE), "snapshot", *map(str, arguments)]
    env = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)


def parsed(raw: Any) -> Snapshot:
    return parse(copy.deepcopy(raw), SIZE)


class Page(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def leaking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(server_like(600, leak_every=10).snapshot(), tmp_path_factory.mktemp("snapshots") / "leak.pickle")


def test_the_terminal_names_the_leak_in_100_columns(leaking: Path) -> None:
    result = run(leaking)
    assert (result.returncode, result.stderr) == (0, "")
    assert "forward_23 keeps what it allocates" in result.stdout
    assert "16 MiB to 32 MiB" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


def test_the_bar_fits_the_narrowest_terminal(leaking: Path) -> None:
    lines = run(leaking, columns=80).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    (bar,) = [line for line in lines if re.fullmatch(r"│ [#~.]+ *│", line)]  # what wraps has two lines
    assert len(bar.strip("│ ")) == SUMS_BAR


def test_one_segment_and_one_block_is_one() -> None:
    bed = AllocatorBed()
    bed.alloc(30 * MIB)
    for more, says in ((0, "in 1 segment;"), (2, "in 3 segments;")):
        for _ in range(more):
            bed.alloc(30 * MIB)
        report = analyse(parsed(bed.snapshot()), "x")
        assert says in numbers(report.devices[0].usage).plain
    for count, says in ((1, "1 free block of 16 to 32 MiB holds 100%"), (2, "2 free blocks of 16 to 32 MiB hold 100%")):
        bed = AllocatorBed()
        for block in [bed.alloc(20 * MIB) for _ in range(count)]:
            bed.free(block)
        found = analyse(parsed(bed.snapshot()), "x").devices[0].findings
        assert any(says in finding.sentence for finding in found), found


def test_json_is_all_of_it(leaking: Path) -> None:
    answer = json.loads(run(leaking, "--json").stdout)
    assert answer["comparison"] is None
    (device,) = answer["reports"][0]["devices"]
    usage = device["usage"]
    assert usage["reserved"] == usage["allocated"] + usage["awaiting"] + usage["inactive"]


def test_two_files_are_compared(leaking: Path, tmp_path: Path) -> None:
    before = write(server_like(600).snapshot(), tmp_path / "before.pickle")
    result = run(before, leaking)
    assert result.returncode == 0
    assert "the last against the first" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100
    comparison = json.loads(run(before, leaking, "--json").stdout)["comparison"]
    assert comparison["devices"][0]["sites"][0]["site"]["name"] == "forward_23"


def test_errors_are_one_line_and_have_their_exit_codes(tmp_path: Path, leaking: Path) -> None:
    ran = tmp_path / "ran"
    evil = tmp_path / "evil.pickle"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {ran}",)

    evil.write_bytes(pickle.dumps([Evil()]))
    for path, says in ((evil, "refused, nothing was run"), (tmp_path / "absent", "No such file")):
        result = run(path)
        assert (result.returncode, result.stdout) == (1, "")
        (line,) = result.stderr.splitlines()
        assert says in line
        assert str(path) in line
    assert not ran.exists()
    assert run().returncode == 2
    assert run(leaking, "--max-mib", "0").returncode == 2
    result = run(leaking, "--html", tmp_path / "no" / "folder.html")
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1


def test_the_page_needs_nothing_from_outside(leaking: Path, tmp_path: Path) -> None:
    target = tmp_path / "map.html"
    assert run(leaking, "--html", target).returncode == 0
    text = target.read_text()
    parser = Page(text)
    assert parser.open == []
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bhref=", text)
    policy = next(a["content"] for tag, a in parser.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert "forward_23 keeps what it allocates" in text


def test_all_text_of_a_snapshot_is_escaped() -> None:
    bed = AllocatorBed()
    for n in range(5):
        frames = [{"name": HOSTILE, "filename": f"{HOSTILE}/{HOSTILE}.py", "line": n}]
        bed.alloc(30 * MIB, frames)
    with pytest.raises(MemoryError):
        bed.alloc(200 * GIB, frames)
    raw = bed.snapshot()
    raw["device_traces"][0].append({"action": HOSTILE, "size": 1})
    raw["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = HOSTILE
    snapshot = parsed(raw)
    parser = Page(page(snapshot, analyse(snapshot, HOSTILE)))
    assert [tag for tag, _ in parser.tags].count("script") == 1
    assert not any(tag == "img" for tag, _ in parser.tags)
    assert not any(name.startswith("on") for _, attributes in parser.tags for name in attributes)


def test_rich_markup_in_a_snapshot_is_text(tmp_path: Path) -> None:
    bed = AllocatorBed()
    bed.alloc(30 * MIB, [{"name": "[red]f[/nope]", "filename": "/srv/[bold]x.py", "line": 1}])
    result = run(write(bed.snapshot(), tmp_path / "[link]s.pickle"))
    assert result.returncode == 0
    assert "[red]f[/nope]" in result.stdout


def test_what_is_drawn_is_bounded_and_says_what_it_folded() -> None:
    bed, sites = AllocatorBed(capacity=1 << 50), stacks(3000, depth=40)
    for n in range(30_000):
        bed.alloc(512 + n % 9 * 512, sites[n % 3000])
    for n in range(50):
        bed.alloc(20 * MIB, sites[n])
    snapshot = parsed(bed.snapshot())
    picture = segment_map(snapshot.segments, snapshot.stacks, rows=80)
    assert picture.segments == 80
    assert picture.left_out == len(snapshot.segments) - 80
    assert picture.rects == picture.svg.count("<rect") > 5000
    blocks = sum(
        len(segment.blocks) for segment in sorted(snapshot.segments, key=lambda s: (-s.free, -s.size, s.address))[:80]
    )
    assert picture.folded > 0.8 * blocks
    coarse = segment_map(snapshot.segments, snapshot.stacks, rows=80, most=1000)
    assert coarse.rects == coarse.svg.count("<rect") <= 1000
    fire = flame(snapshot.segments, snapshot.stacks)
    assert fire.rects == fire.svg.count("<rect") <= MOST
    assert fire.size == sum(block.size for segment in snapshot.segments for block in segment.blocks if block.state != 2)


def test_rows_of_the_map_are_as_wide_as_the_picture() -> None:
    snapshot = parsed(server_like(200).snapshot())
    svg = segment_map(snapshot.segments, snapshot.stacks).svg
    ends: dict[str, float] = {}
    for x, y, width in re.findall(r'<rect class="." x="([\d.]+)" y="(\d+)" width="([\d.]+)"', svg):
        assert float(x) >= ends.get(y, 0.0) - 0.35  # no overlap, rounding aside
        ends[y] = float(x) + float(width)
    assert all(end == pytest.approx(1200, abs=1) for end in ends.values())


def test_a_flame_graph_without_stacks_says_so() -> None:
    bed = AllocatorBed()
    bed.alloc(30 * MIB)
    snapshot = parsed(bed.snapshot())
    assert "no call stack recorded" in flame(snapshot.segments, snapshot.stacks).svg


def test_an_empty_snapshot_is_no_error(tmp_path: Path) -> None:
    path = write({"segments": [], "device_traces": [[]]}, tmp_path / "empty.pickle")
    result = run(path, "--html", tmp_path / "empty.html")
    assert (result.returncode, result.stderr) == (0, "")
    assert "no segment" in result.stdout
