"""What ``kvtide top`` costs: processor time while it looks once a second at eight engines of fifty tenants, and how
soon it paints.

It is the real command on a terminal of its own (a pty), asked of a server that has one state: what the agent costs is
another benchmark's. First paint is the time to the first bytes of its screen, and first answer the time until what the
agent said is on it: each beside the time in which Python imports Textual and does nothing else. What the machine does
to one it does to the other.
"""

from __future__ import annotations

import fcntl
import http.server
import os
import pty
import select
import signal
import statistics
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.rows import Row, median_ratio
from tests.bed.agent import KVTIDE

PYTHON = KVTIDE.parent / "python"
SIZE = (50, 160)  # lines and columns
CPU = 0.03
# Of the time that Textual's import takes, which is 0.3 to 0.4 s on a core that has nothing else to do. The floor of any
# program that Textual draws is above 1; the first screen is written before that, in less than 0.3 s there.
FIRST_PAINT_RATIO, FIRST_ANSWER_RATIO = 0.75, 2.0
PAINTED, ANSWERED = b"kvtide top", b"health"  # in the first line, and in it once there is a state
WARM_UP_SECONDS = 5.0
PATIENCE = 60.0
TICKS = os.sysconf("SC_CLK_TCK")
IMPORT = "import textual.app, textual.widget"


def run(quick: bool) -> list[Row]:
    """Return the rows; ``quick`` measures for a fifth of the time."""
    seconds, starts = (12.0, 3) if quick else (60.0, 7)
    with _agent(_state()) as url:
        paints = [_start(url) for _ in range(starts)]
        cpu = _cpu(url, seconds)
    return [
        Row("top.cpu", cpu, "cores", CPU),
        Row("top.first_paint", min(each.painted for each in paints), "s"),
        Row("top.first_answer", min(each.answered for each in paints), "s"),
        Row("top.first_answer_cpu", statistics.median(each.spent for each in paints), "s"),
        median_ratio("top.first_paint_vs_import", [(each.painted, each.alone) for each in paints], FIRST_PAINT_RATIO),
        median_ratio(
            "top.first_answer_vs_import", [(each.answered, each.alone) for each in paints], FIRST_ANSWER_RATIO
        ),
    ]


def _state() -> bytes:
    """Return a node with eight GPUs and engines, each with fifty tenants, as the agent would send it."""
    code = "import sys, msgspec; from tests.unit.top.nodes import full; "
    code += "sys.stdout.buffer.write(msgspec.json.encode(full()))"
    root = Path(__file__).parents[1]
    done = subprocess.run([str(PYTHON), "-c", code], cwd=root, capture_output=True, check=True)
    msgspec.json.decode(done.stdout)
    return done.stdout


@contextmanager
def _agent(state: bytes) -> Iterator[str]:
    """Serve ``state``; each answer is of a later moment, so that the screen has something to draw."""
    ticks = iter(range(10**9))
    value = msgspec.json.decode(state)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            tick = next(ticks)
            for engine in value["engines"]:
                engine["pool"]["held"] = 1000 + (97 * tick) % 9000
                engine["running"] = tick % 32
            body = msgspec.json.encode(value | {"monotonic": value["monotonic"] + tick, "at": time.time()})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None: ...  # a command that was killed while it asked

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _running(url: str) -> Iterator[tuple[int, int]]:
    """Run the command on a terminal of its own; yield its pid and our end of that."""
    pid, end = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(KVTIDE, [str(KVTIDE), "top", "--url", url])  # noqa: S606 - no shell is what is wanted
    try:
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
        yield pid, end
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(end)


class Start(NamedTuple):
    """Seconds by the wall to the first paint and to the first answer; of the processor to the latter; of an import."""

    painted: float
    answered: float
    spent: float
    alone: float


def _start(url: str) -> Start:
    began = time.perf_counter()
    with _running(url) as (pid, end):
        got = _until(end, b"", PAINTED)
        painted = time.perf_counter() - began
        _until(end, got, ANSWERED)
        answered, spent = time.perf_counter() - began, _spent(pid)
    began = time.perf_counter()
    subprocess.run([str(PYTHON), "-c", IMPORT], check=True)
    return Start(painted, answered, spent, time.perf_counter() - began)


def _until(end: int, got: bytes, wanted: bytes) -> bytes:
    """Read what it draws until that is there; return all of it."""
    while wanted not in got:
        if not select.select([end], [], [], PATIENCE)[0]:
            raise RuntimeError(f"{wanted.decode()!r} was not painted")
        got += os.read(end, 65536)
    return got


def _cpu(url: str, seconds: float) -> float:
    """Return the cores that it takes while it is looked at."""
    with _running(url) as (pid, end):
        drawn = _drain(end, WARM_UP_SECONDS)
        while drawn < 1000:
            drawn += _drain(end, WARM_UP_SECONDS)
        before, began = _spent(pid), time.monotonic()
        if not _drain(end, seconds):
            raise RuntimeError("nothing was drawn: that is no measure")
        return (_spent(pid) - before) / (time.monotonic() - began)


def _drain(end: int, seconds: float) -> int:
    """Read what it draws for so long; return how many bytes that were."""
    size, until = 0, time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([end], [], [], left)[0]:
            size += len(os.read(end, 65536))
    return size


def _spent(pid: int) -> float:
    """Return the processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
