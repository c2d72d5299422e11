"""What comes from outside steers neither the terminal nor the log; what a writer lets through is not changed."""

from __future__ import annotations

import errno
import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.panel import Panel
from rich.text import Text

from agent.cli.app import PlainFormatter
from agent.faces.terminal import Terminal
from agent.plain import plain, plain_lines
from tests.bed.snapshots import MIB, AllocatorBed, write

KVTIDE = Path(sys.executable).parent / "kvtide"
STEERS = "\x1b[31m\x1b]0;title\x07\x9b2J\u202ecod.exe\u2028\x00"


@pytest.mark.parametrize("text", ["", "plain", "größe 中文 💥", "a\tb"])
def test_what_steers_nothing_stays(text: str) -> None:
    assert plain_lines(text) == text


@given(st.text(st.characters(codec=None)))
def test_nothing_that_steers_is_left_and_the_length_stays(text: str) -> None:
    line = plain(text)
    assert len(line) == len(text)
    assert not set(line) & {*map(chr, range(32)), *map(chr, range(127, 160)), "\u202e", "\u2028", "\ud800"}
    line.encode()


def test_a_long_text_loses_its_middle() -> None:
    assert plain("a" * 50 + "z" * 50, 20) == "aaaaaaaaaa...zzzzzzz"
    assert plain("a" * 20, 20) == "a" * 20


def test_the_terminal_shows_its_own_colours_and_nobody_elses() -> None:
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, color_system="truecolor", width=60)
    terminal.print(Panel(Text(STEERS, style="red"), title=Text(STEERS)))
    terminal.print(STEERS, markup=False)
    text = out.getvalue()
    assert text.count("\x1b[31m") == 1, "its own"
    assert "\x1b]" not in text
    assert not set(text) & {"\x07", "\x9b", "\u202e", "\u2028", "\x00"}
    assert "cod.exe" in text


def test_a_message_of_the_log_is_one_line_without_escapes() -> None:
    record = logging.LogRecord("n", logging.INFO, "f", 1, "scraping %s", (f"a\n{STEERS}",), None)
    line = PlainFormatter("%(levelname)s %(message)s").format(record)
    assert line.startswith("INFO scraping a")
    assert line.isprintable()


# -- the output of a command ----------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    bed = AllocatorBed()
    for n in range(3000):
        bed.alloc(3 * MIB, [{"name": f"f{n}\u4e2d", "filename": f"/a/b{n}.py", "line": n}])
    return write(bed.snapshot(), tmp_path / "s.pickle")


def test_a_full_disk_is_one_line(snapshot: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [str(KVTIDE), "snapshot", str(snapshot)], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == f"kvtide: what was asked for can't be written: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_reader_that_has_seen_enough_ends_it_quietly(snapshot: Path, options: tuple[str, ...]) -> None:
    read, wrote = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [str(KVTIDE), "snapshot", str(snapshot), *options], stdout=wrote, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(wrote)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_terminal_without_all_letters_gets_the_others(snapshot: Path) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([str(KVTIDE), "snapshot", str(snapshot)], capture_output=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"device 0" in done.stdout


@pytest.mark.parametrize(("columns", "most"), [("5", 80), ("40", 80), ("100", 100)])
def test_a_narrow_terminal_cuts_no_number(snapshot: Path, columns: str, most: int) -> None:
    env = {**os.environ, "COLUMNS": columns}
    done = subprocess.run(
        [str(KVTIDE), "snapshot", str(snapshot)], capture_output=True, text=True, check=False, env=env
    )
    assert max(map(len, done.stdout.splitlines())) == most
    assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
